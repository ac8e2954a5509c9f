// Vectors of 8 columns in AVX2 registers. Included where the compiler may use AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "product.h"

namespace edgespec {

namespace {  // a copy for each file that includes it, with the instructions that it may use

struct Avx2 {
    static constexpr int LANES = 8, COLUMNS = 8, BYTE_OFFSET = 0;
    using Int = __m256i;
    using Float = __m256;

    static Int load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
    static Int load_bytes(const uint8_t* p) { return load(p); }
    static Int low_nibbles(Int v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
    static Int high_nibbles(Int v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }
    static Int or_bits(Int a, Int b) { return _mm256_or_si256(a, b); }
    template <int SHIFT, int MASK>
    static Int fifth_bits(Int v) {
        if constexpr (SHIFT >= 4) v = _mm256_srli_epi16(v, SHIFT - 4);
        if constexpr (SHIFT < 4) v = _mm256_slli_epi16(v, 4 - SHIFT);
        return _mm256_and_si256(v, _mm256_set1_epi8(MASK << 4));
    }

    // Products of 8 bits are added in pairs to 16, of which as many are added up as can't overflow: 2 * 127 * 15 * 8
    // is below 2^15, as are 2 * 127 * 31 * 4 and 2 * 127 * 63 * 2.
    template <int BITS, int FROM, int TO>
    static Int dot(const Int* w, const int8_t* q) {
        const Int ones = _mm256_set1_epi16(1);
        Int sum = _mm256_setzero_si256();
        if constexpr (BITS == 8) {
            for (int g = FROM; g < TO; ++g) {
                const Int x = group(q, g);
                const Int pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w[g]), _mm256_sign_epi8(x, w[g]));
                sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
            }
        } else {
            constexpr int TOGETHER = BITS == 4 ? 8 : BITS == 5 ? 4 : 2;
            for (int g = FROM; g < TO; g += TOGETHER) {
                Int pairs = _mm256_maddubs_epi16(w[g], group(q, g));
                for (int k = g + 1; k < g + TOGETHER && k < TO; ++k)
                    pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w[k], group(q, k)));
                const Int four = _mm256_madd_epi16(pairs, ones);
                sum = g == FROM ? four : _mm256_add_epi32(sum, four);
            }
        }
        return sum;
    }

    static Int minus(Int v, int32_t x) { return _mm256_sub_epi32(v, _mm256_set1_epi32(x)); }
    static Float to_float(Int v) { return _mm256_cvtepi32_ps(v); }
    static Float zero() { return _mm256_setzero_ps(); }
    static Float halves(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
    static Float bytes(const uint8_t* p) {
        return to_float(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    }
    static Float signed_bytes(const uint8_t* p) {
        return to_float(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    }
    static Float negative(Float v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }
    static Float times(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float by(Float a, float x) { return _mm256_mul_ps(a, _mm256_set1_ps(x)); }
    static Float add_product(Float sum, Float a, Float b) { return _mm256_fmadd_ps(a, b, sum); }
    static Float add_scaled(Float sum, Float a, float x) { return _mm256_fmadd_ps(a, _mm256_set1_ps(x), sum); }
    static void store(float* p, Float v) { _mm256_storeu_ps(p, v); }
    static void prefetch(const uint8_t* p, int bytes) {
        for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
    }

protected:
    // 4 inputs of a row, in every lane.
    static Int group(const int8_t* q, int g) {
        int32_t four;
        std::memcpy(&four, q + 4 * g, sizeof four);
        return _mm256_set1_epi32(four);
    }
};

}  // namespace
}  // namespace edgespec
