// Inputs of a product: rows of floats, quantized to 8 bits in blocks of 32.
//
// Up to MAX_ROWS rows lie together: their first blocks, then their second ones, and so on, in the order in which
// products read them. The next MAX_ROWS rows follow after all these.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"

namespace edgespec {

constexpr int MAX_ROWS = 64;

struct RowBlock {
    int8_t q[BLOCK];
    float scale;
    float scaled_sum;       // scale * the sum of the integers
    int32_t eightfold_sum;  // 8 * the sum of the integers
    int16_t sums[2];        // by halves of 16
};

// Quantizes `inputs` numbers of a row, a multiple of 32; from one of its blocks to the next it is `step` blocks.
using Quantizer = void (*)(const float* row, int64_t inputs, RowBlock* target, int64_t step);

// Where block i of a row lies among those of `count` rows, and how far it is to the row's next block.
struct RowPlace {
    int64_t first, step;

    RowPlace(int64_t row, int64_t i, int64_t count, int64_t blocks) {
        const int64_t before = row / MAX_ROWS * MAX_ROWS;
        step = count - before < MAX_ROWS ? count - before : MAX_ROWS;
        first = before * blocks + i * step + row - before;
    }
};

}  // namespace edgespec
