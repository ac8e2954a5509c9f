#include "rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace edgespec {

namespace {

// As an integer, since compilers turn that into vector code, and since what isn't a number is larger than all that are.
float largest_magnitude(const float* row) {
    uint32_t bits[BLOCK], most = 0;
    std::memcpy(bits, row, sizeof bits);
    for (uint32_t value : bits) most = std::max(most, value & 0x7fffffffu);
    float largest;
    std::memcpy(&largest, &most, sizeof largest);
    return largest;
}

}  // namespace

void quantize_row(const float* row, int64_t inputs, RowBlock* target) {
    for (int64_t i = 0; i < inputs / BLOCK; ++i, row += BLOCK, ++target) {
        const float scale = largest_magnitude(row) / 127.0f;
        float inverse = scale >= std::numeric_limits<float>::min() ? 1.0f / scale : 0.0f;
        target->scale = inverse > 0 ? scale : 0.0f;
        if (!(scale <= std::numeric_limits<float>::max())) {  // infinite or not a number: so is every product with it
            inverse = 0.0f;
            target->scale = std::numeric_limits<float>::quiet_NaN();
        }
        int32_t q[BLOCK], sum[2] = {0, 0};
        if (inverse > 0) {
            // adding and taking away 1.5 * 2^23 rounds to the nearest integer, halves to even
            for (int k = 0; k < BLOCK; ++k) q[k] = int32_t((row[k] * inverse + 12582912.0f) - 12582912.0f);
        } else {
            std::memset(q, 0, sizeof q);
        }
        for (int k = 0; k < BLOCK; ++k) target->q[k] = int8_t(q[k]);
        for (int k = 0; k < 16; ++k) sum[0] += q[k], sum[1] += q[k + 16];
        target->sum = sum[0] + sum[1];
        for (int half = 0; half < 2; ++half) target->sums[half] = int16_t(sum[half]);
        target->scaled_sum = target->scale * float(target->sum);
    }
}

}  // namespace edgespec
