// Products of tiled weights with quantized rows: one function for each instruction set, chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "attention.h"
#include "layout.h"
#include "rows.h"

namespace edgespec {

// Computes target[r * stride + c] for rows r and the columns of one tile, of which the last one may be cut off.
// Of each row: block after block, the integer sum converted to float and multiplied in, so that the result doesn't
// depend on how many rows there are.
using TileProduct = void (*)(const uint8_t* tile, int64_t inputs, const RowBlock* rows, int64_t count, float* target,
                             int64_t stride, int outputs);

struct Path {
    const char* name;
    int columns;                        // of its tiles
    bool (*runs_here)();                // whether this processor has the instructions
    TileProduct (*product)(Type type);  // for a kind of weights
    AttentionFunction attention;
};

// All paths that this binary holds, the fastest first; the last one is plain C++.
const Path* const* all_paths(int* count);

// The first that runs here, or the one of that name; nullptr where it doesn't exist or doesn't run here.
const Path* choose_path(const char* name);

}  // namespace edgespec
