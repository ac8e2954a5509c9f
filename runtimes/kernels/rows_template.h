// Quantization of rows, written once for all instruction sets. Beyond what attention needs, `Isa` supplies:
//
//   magnitude(v)
//   store_bytes(p, v)    LANES signed bytes from whole numbers; anything from others
#pragma once

#include <cmath>
#include <cstring>
#include <limits>

#include "rows.h"

namespace edgespec {

// Quantizes `inputs` numbers (a multiple of 32) as ggml does for Q8_0, except that the scale stays in single precision.
// Every machine and every path gets the same result.
template <class Isa>
void quantize_row(const float* row, int64_t inputs, RowBlock* target, int64_t step) {
    constexpr int L = Isa::LANES;
    constexpr float SHIFT = 12582912.0f;  // 1.5 * 2^23: leaves no bits for fractions, so rounds; halves to even
    for (int64_t i = 0; i < inputs / BLOCK; ++i, row += BLOCK, target += step) {
        auto most = Isa::zero();
        for (int k = 0; k < BLOCK; k += L) most = Isa::larger(most, Isa::magnitude(Isa::floats(row + k)));
        float scale = Isa::largest(most) / 127.0f;
        const float inverse = scale >= std::numeric_limits<float>::min() ? 1.0f / scale : 0.0f;
        float sums[2];  // of whole numbers: exact in any order
        for (int half = 0; half < 2; ++half) {
            auto all = Isa::zero();
            for (int k = half * BLOCK / 2; k < (half + 1) * BLOCK / 2; k += L) {
                const auto shifted = Isa::add(Isa::by(Isa::floats(row + k), inverse), Isa::set(SHIFT));
                const auto whole = Isa::add(shifted, Isa::set(-SHIFT));
                Isa::store_bytes(target->q + k, whole);
                all = Isa::add(all, whole);
            }
            sums[half] = Isa::sum(all);
        }
        float sum = sums[0] + sums[1];
        if (!(std::abs(sum) <= 127 * BLOCK)) {  // infinite or not a number: so is every product with it
            std::memset(target->q, 0, BLOCK);
            sum = sums[0] = sums[1] = 0;
            scale = std::numeric_limits<float>::quiet_NaN();
        } else if (inverse == 0) {
            scale = 0;
        }
        target->scale = scale;
        target->sums[0] = int16_t(sums[0]);
        target->sums[1] = int16_t(sums[1]);
        target->eightfold_sum = 8 * int32_t(sum);
        target->scaled_sum = target->scale * sum;
    }
}

}  // namespace edgespec
