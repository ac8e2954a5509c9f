// The instruction sets that this binary has functions for.
#pragma once

#include "attention.h"
#include "product.h"

namespace edgespec {

struct Path {
    const char* name;
    int columns;                        // of its tiles
    bool (*runs_here)();                // whether this processor has the instructions
    TileProduct (*product)(Type type);  // for a kind of weights
    AttentionFunction attention;
    Quantizer quantize;
};

// All paths that this binary holds, the fastest first; the last one is plain C++.
const Path* const* all_paths(int* count);

// The first that runs here, or the one of that name; nullptr where it doesn't exist or doesn't run here.
const Path* choose_path(const char* name);

}  // namespace edgespec
