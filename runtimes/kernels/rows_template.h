// Quantization of rows, written once for all instruction sets; attention_template.h says what `Isa` supplies for it.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "rows.h"

namespace edgespec {

// As an integer, since compilers turn that into vector code, and since what isn't a number is larger than all that are.
template <class Isa>
float largest_magnitude(const float* row, int count) {
    uint32_t most = 0;
    for (int k = 0; k < count; ++k) {
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

// What is multiplied with to quantize, and what with to come back; a scale that isn't a number where an input is
// infinite or not a number, since so is every product with it.
struct RowScale {
    float inverse, scale;

    explicit RowScale(float largest) : inverse(0), scale(largest / 127.0f) {
        if (!(scale <= std::numeric_limits<float>::max())) scale = std::numeric_limits<float>::quiet_NaN();
        else if (scale >= std::numeric_limits<float>::min()) inverse = 1.0f / scale;
        else scale = 0.0f;
    }
};

template <class Isa>
void quantize_block(const float* row, RowScale by, RowBlock& target) {
    float rounded[BLOCK] = {}, sums[2] = {0, 0};
    for (int half = 0; half < 2 && by.inverse > 0; ++half)
        sums[half] = round_half<Isa>(row + half * BLOCK / 2, by.inverse, rounded + half * BLOCK / 2);
    for (int k = 0; k < BLOCK; ++k) target.q[k] = int8_t(rounded[k]);
    for (int half = 0; half < 2; ++half) target.sums[half] = int16_t(sums[half]);
    target.scale = by.scale;
    target.scaled_sum = by.scale * (sums[0] + sums[1]);
    target.eightfold_sum = 8 * int32_t(sums[0] + sums[1]);
}

// As ggml does for Q8_0 and Q8_K, except that the scale stays in single precision and positive. Every machine and every
// path gets the same result.
template <class Isa>
void quantize_row(const float* row, int64_t inputs, RowFormat format, RowBlock* target) {
    const int span = format.span;
    for (int64_t i = 0; i < inputs; i += span, target += span / BLOCK) {
        const RowScale scale(largest_magnitude<Isa>(row + i, span));
        for (int b = 0; b < span / BLOCK; ++b) quantize_block<Isa>(row + i + b * BLOCK, scale, target[b]);
        for (int b = 0; b + 1 < span / BLOCK; b += 2)
            for (int n = 0; n < 2; ++n) target[b].sums_of_two[n] = int16_t(target[b + n].eightfold_sum / 8);
        for (int b = 0; b < span / BLOCK && format.biased; ++b)
            for (int8_t& q : target[b].q) q = int8_t(q ^ -128);
    }
}

}  // namespace edgespec
