// EDGESPEC_TARGET("a,b") ... EDGESPEC_TARGET_END: functions between them may use these instructions. What is shared with
// other files must be included before, or the linker might keep the copy with instructions that not every machine has.
//
// The templates are included between them, so what they include themselves is included here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#define EDGESPEC_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define EDGESPEC_TARGET(list) EDGESPEC_PRAGMA(clang attribute push(__attribute__((target(list))), apply_to = function))
#define EDGESPEC_TARGET_END EDGESPEC_PRAGMA(clang attribute pop)
#elif defined(__GNUC__)
#define EDGESPEC_TARGET(list) EDGESPEC_PRAGMA(GCC push_options) EDGESPEC_PRAGMA(GCC target(list))
#define EDGESPEC_TARGET_END EDGESPEC_PRAGMA(GCC pop_options)
#else  // MSVC takes all intrinsics everywhere
#define EDGESPEC_TARGET(list)
#define EDGESPEC_TARGET_END
#endif
