#pragma once

#if defined(_WIN32)
#define EDGESPEC_API extern "C" __declspec(dllexport)
#else
#define EDGESPEC_API extern "C" __attribute__((visibility("default")))
#endif
