// Inputs of a product: rows of floats, quantized to 8 bits as ggml does: with a scale for 32 of them, or for 256 where
// the weights are of a K type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"

namespace edgespec {

struct RowBlock {
    int8_t q[BLOCK];
    float scale;
    float scaled_sum;         // scale * the sum of the integers
    int32_t eightfold_sum;    // 8 * the sum of the integers
    int16_t sums[2];          // by halves of 16
    int16_t sums_of_two[2];   // in even blocks of a row for K types: of this block and the next
};

struct RowFormat {
    int span;     // of inputs that share a scale
    bool biased;  // whether `q` are 128 larger, as bytes without a sign; sums are not

    bool operator!=(const RowFormat& other) const { return span != other.span || biased != other.biased; }
};

// Quantizes `inputs` numbers, a multiple of the span.
using Quantizer = void (*)(const float* row, int64_t inputs, RowFormat format, RowBlock* target);

}  // namespace edgespec
