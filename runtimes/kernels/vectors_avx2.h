// Vectors of 8 columns, two in a tile, in AVX2's 16 registers. Included where the compiler may use AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "product.h"

namespace edgespec {

namespace {  // a copy for each file that includes it, with the instructions that it may use

struct Avx2 {
    static constexpr int LANES = 8, COLUMNS = 16, ROWS = 4, SUMS = 8, BYTE_OFFSET = 0;
    static constexpr bool KEEPS = true;
    using Int = __m256i;
    using Group = Int;
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

    // 4 inputs of a row, in every lane.
    static Int group(const void* p) {
        int32_t four;
        std::memcpy(&four, p, sizeof four);
        return _mm256_set1_epi32(four);
    }

    static Int signed_bytes(const uint8_t* p) {
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    }

    struct HalfScales {
        Int first, second;  // as pairs of the same 16 bits

        HalfScales() = default;
        HalfScales(const uint8_t* p, const uint8_t* q) : first(twice(p)), second(twice(q)) {}
        Int both() const { return _mm256_blend_epi16(first, second, 0xaa); }

    private:
        static Int twice(const uint8_t* p) {
            const Int wide = signed_bytes(p);
            return _mm256_or_si256(_mm256_and_si256(wide, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32(wide, 16));
        }
    };

    // Products of 8 bits are added in pairs to 16, of which as many are added up as can't overflow: 2 * 127 * 15 * 8
    // is below 2^15, as are 2 * 127 * 31 * 4 and 2 * 127 * 63 * 2.
    template <int BITS, class = void>
    struct Dot;

    static Int pairs(Int a, Int b, Int x, Int y) {
        return _mm256_add_epi16(_mm256_maddubs_epi16(a, x), _mm256_maddubs_epi16(b, y));
    }
    // A sum that the compiler can't put off: GCC would first form all products of a block, and move them to the stack.
    static Int formed(Int sum) {
#if defined(__GNUC__)
        __asm__("" : "+x"(sum));
#endif
        return sum;
    }
    static Int fours(Int v) { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }

    template <class Any>
    struct Dot<4, Any> {
        Int sum;

        template <int V>
        void add(Int a, Int b, Int x, Int y) {
            sum = formed(V == 0 ? pairs(a, b, x, y) : _mm256_add_epi16(sum, pairs(a, b, x, y)));
        }
        Int total() const { return fours(sum); }
    };

    template <class Any>
    struct Dot<5, Any> {
        Int sum, first;

        template <int V>
        void add(Int a, Int b, Int x, Int y) {
            sum = formed(V % 2 == 0 ? pairs(a, b, x, y) : _mm256_add_epi16(sum, pairs(a, b, x, y)));
            if (V == 1) first = fours(sum);
        }
        Int total() const { return _mm256_add_epi32(first, fours(sum)); }
    };

    template <class Any>
    struct Dot<6, Any> {
        Int sum;

        template <int V>
        void add(Int a, Int b, Int x, Int y, const HalfScales& scales) {
            const Int more = _mm256_madd_epi16(pairs(a, b, x, y), V < 2 ? scales.first : scales.second);
            sum = formed(V == 0 ? more : _mm256_add_epi32(sum, more));
        }
        Int total(const HalfScales& scales, const int16_t* sums) const {
            const Int offset = _mm256_madd_epi16(_mm256_slli_epi16(scales.both(), 5), group(sums));
            return _mm256_sub_epi32(sum, offset);
        }
    };

    template <class Any>
    struct Dot<8, Any> {
        Int sum;

        template <int V>
        void add(Int a, Int b, Int x, Int y) {
            const Int more = _mm256_add_epi32(fours(signed_pairs(a, x)), fours(signed_pairs(b, y)));
            sum = formed(V == 0 ? more : _mm256_add_epi32(sum, more));
        }
        Int total() const { return sum; }

    private:
        static Int signed_pairs(Int w, Int x) { return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)); }
    };

    static Int minus(Int v, int32_t x) { return _mm256_sub_epi32(v, _mm256_set1_epi32(x)); }
    static Float to_float(Int v) { return _mm256_cvtepi32_ps(v); }
    static Float zero() { return _mm256_setzero_ps(); }
    static Float halves(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
    static Float bytes(const uint8_t* p) {
        return to_float(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
    }
    static Float negative(Float v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }
    static Float times(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float by(Float a, float x) { return _mm256_mul_ps(a, _mm256_set1_ps(x)); }
    static Float add_product(Float sum, Float a, Float b) { return _mm256_fmadd_ps(a, b, sum); }
    static Float add_scaled(Float sum, Float a, float x) { return _mm256_fmadd_ps(a, _mm256_set1_ps(x), sum); }
    static Float floats(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
    static Float set(float x) { return _mm256_set1_ps(x); }
    static Float larger(Float a, Float b) { return _mm256_max_ps(a, b); }
    static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    static Float magnitude(Float v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
    static float largest(Float v) {
        __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        four = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
    }
    static float sum(Float v) {
        __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        four = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
    }
    static void store_bytes(int8_t* p, Float v) {
        const Int whole = _mm256_cvtps_epi32(v);
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
    }
    // Squares of 4 by 4 in the halves of vectors, then the halves.
    static void transpose(Float* v) {
        Float w[LANES];
        for (int i = 0; i < LANES; i += 4) {
            const Float a = _mm256_unpacklo_ps(v[i], v[i + 1]), b = _mm256_unpackhi_ps(v[i], v[i + 1]);
            const Float c = _mm256_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm256_unpackhi_ps(v[i + 2], v[i + 3]);
            w[i] = _mm256_shuffle_ps(a, c, 0x44);
            w[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
            w[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
            w[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
        }
        for (int i = 0; i < 4; ++i) {
            v[i] = _mm256_permute2f128_ps(w[i], w[i + 4], 0x20);
            v[i + 4] = _mm256_permute2f128_ps(w[i], w[i + 4], 0x31);
        }
    }
    static Float by_power(Float a, Float n) {
        const Int exponent = _mm256_slli_epi32(_mm256_castps_si256(n), 23);
        return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), exponent));
    }
    static Float where_above(Float x, float least, Float a) {
        return _mm256_and_ps(_mm256_cmp_ps(x, set(least), _CMP_GT_OQ), a);
    }
    static void store(float* p, Float v) { _mm256_storeu_ps(p, v); }
    template <int R>
    static void prefetch(const uint8_t* p, int bytes) {
        for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
    }
};

}  // namespace
}  // namespace edgespec
