// Products of tiled weights with quantized rows: one function for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"
#include "rows.h"

namespace edgespec {

constexpr int MAX_ROWS = 64;  // of a call to a TileProduct

// Computes target[r * stride + c] for rows r and the columns of one tile, of which the last one may be cut off.
// Of each row: block after block, the integer sum converted to float and multiplied in, so that the result doesn't
// depend on how many rows there are.
using TileProduct = void (*)(const uint8_t* tile, int64_t inputs, const RowBlock* rows, int64_t count, float* target,
                             int64_t stride, int outputs);

}  // namespace edgespec
