// Products of tiled weights with quantized rows: one function for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"
#include "rows.h"

namespace edgespec {

// Computes target[r * stride + c] for up to MAX_ROWS rows r that lie together and the columns of one tile, of which the
// last one may be cut off.
// Of each row: block after block, the integer sum converted to float and multiplied in, with Q6_K 256 inputs after 256
// inputs, so that the result doesn't depend on how many rows there are.
using TileProduct = void (*)(const uint8_t* tile, int64_t inputs, const RowBlock* rows, int64_t count, float* target,
                             int64_t stride, int outputs);

}  // namespace edgespec
