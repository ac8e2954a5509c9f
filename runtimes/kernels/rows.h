// Inputs of a product: rows of floats, quantized to 8 bits in blocks of 32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"

namespace edgespec {

struct RowBlock {
    int8_t q[BLOCK];
    float scale;
    float scaled_sum;       // scale * the sum of the integers
    int32_t eightfold_sum;  // 8 * the sum of the integers
    int16_t sums[2];        // by halves of 16
};

// Quantizes `inputs` numbers, a multiple of 32.
using Quantizer = void (*)(const float* row, int64_t inputs, RowBlock* target);

}  // namespace edgespec
