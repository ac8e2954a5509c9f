// The kernels as a device of ggml.
//
// Weights that it can multiply go into buffers of its own type, in tiles. The rest of the graph stays in ordinary memory
// and is left to ggml's CPU code: this device takes the whole graph, puts its own functions in place of attention and of
// the products with its weights, and has ggml's CPU backend, with ggml's threads, run the result. So there is one pool of
// threads, and nothing waits for it between two nodes but what ggml itself waits for.
#pragma once

#include "export.h"
#include "ggml_abi.h"

// Make the device known. Returns nullptr, or what is in the way. Once for a process.
EDGESPEC_API const char* edgespec_register(const edgespec::Ggml* ggml, const char* path);

// Whether models and contexts that this thread creates from now on use the device.
EDGESPEC_API void edgespec_use(int on);
