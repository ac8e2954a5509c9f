// Quantization of rows, written once for all instruction sets; attention_template.h says what `Isa` supplies for it.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "rows.h"

namespace edgespec {

// As an integer, since compilers turn that into vector code, and since what isn't a number is larger than all that are.
template <class Isa>
float largest_magnitude(const float* row) {
    uint32_t most = 0;
    for (int k = 0; k < BLOCK; ++k) {
        uint32_t bits;
        std::memcpy(&bits, row + k, sizeof bits);
        most = std::max(most, bits & 0x7fffffffu);
    }
    float largest;
    std::memcpy(&largest, &most, sizeof largest);
    return largest;
}

// Integers nearest to the products, as floats; halves to even. Gives their sum, which is exact in any order.
template <class Isa>
float round_half(const float* row, float inverse, float* rounded) {
    constexpr float SHIFT = 12582912.0f;  // 1.5 * 2^23
    float lanes[Isa::LANES], sum = 0;
    typename Isa::Float sums = Isa::zero();
    for (int k = 0; k < BLOCK / 2; k += Isa::LANES) {
        const auto shifted = Isa::add(Isa::by(Isa::floats(row + k), inverse), Isa::set(SHIFT));
        const auto whole = Isa::add(shifted, Isa::set(-SHIFT));
        Isa::store(rounded + k, whole);
        sums = Isa::add(sums, whole);
    }
    Isa::store(lanes, sums);
    for (float lane : lanes) sum += lane;
    return sum;
}

// Quantizes `inputs` numbers (a multiple of 32) as ggml does for Q8_0, except that the scale stays in single precision.
// Every machine and every path gets the same result.
template <class Isa>
void quantize_row(const float* row, int64_t inputs, RowBlock* target) {
    for (int64_t i = 0; i < inputs / BLOCK; ++i, row += BLOCK, ++target) {
        const float scale = largest_magnitude<Isa>(row) / 127.0f;
        float inverse = scale >= std::numeric_limits<float>::min() ? 1.0f / scale : 0.0f;
        target->scale = inverse > 0 ? scale : 0.0f;
        if (!(scale <= std::numeric_limits<float>::max())) {  // infinite or not a number: so is every product with it
            inverse = 0.0f;
            target->scale = std::numeric_limits<float>::quiet_NaN();
        }
        float rounded[BLOCK] = {}, sums[2] = {0, 0};
        for (int half = 0; half < 2 && inverse > 0; ++half)
            sums[half] = round_half<Isa>(row + half * BLOCK / 2, inverse, rounded + half * BLOCK / 2);
        for (int k = 0; k < BLOCK; ++k) target->q[k] = int8_t(rounded[k]);
        for (int half = 0; half < 2; ++half) target->sums[half] = int16_t(sums[half]);
        target->eightfold_sum = 8 * int32_t(sums[0] + sums[1]);
        target->scaled_sum = target->scale * (sums[0] + sums[1]);
    }
}

}  // namespace edgespec
