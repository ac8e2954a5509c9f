#include "cpu.h"
#include "path.h"
#include "target.h"

#if defined(__x86_64__) || defined(_M_X64)

#include <immintrin.h>

EDGESPEC_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
#include "attention_template.h"
#include "dot_template.h"
#include "product_template.h"
#include "rows_template.h"

namespace edgespec {

namespace {

// Vectors of 16 columns.
struct Avx512Vnni {
    static constexpr int LANES = 16, COLUMNS = 16, ROWS = 8, SUMS = 16, BYTE_OFFSET = 128;
    static constexpr bool KEEPS = false;  // the pipes that unpack are idle
    using Int = __m512i;
    using Group = const void*;
    using Float = __m512;

    static Int load(const uint8_t* p) { return _mm512_loadu_si512(p); }
    static Int load_bytes(const uint8_t* p) { return _mm512_xor_si512(load(p), _mm512_set1_epi8(-128)); }
    static Int low_nibbles(Int v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
    static Int high_nibbles(Int v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }
    static Int or_bits(Int a, Int b) { return _mm512_or_si512(a, b); }
    template <int SHIFT, int MASK>
    static Int fifth_bits(Int v) {
        if constexpr (SHIFT >= 4) v = _mm512_srli_epi16(v, SHIFT - 4);
        if constexpr (SHIFT < 4) v = _mm512_slli_epi16(v, 4 - SHIFT);
        return _mm512_and_si512(v, _mm512_set1_epi8(char(MASK << 4)));
    }
    static Group group(const void* p) { return p; }

    static Int no_sum() { return _mm512_setzero_si512(); }
    static Int plus(Int a, Int b) { return _mm512_add_epi32(a, b); }
    static Int multiply(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
    // The instruction itself spreads the inputs. Compilers load and spread them with another one, and half as many
    // instructions let the processor look twice as far ahead, past the conversions at the end of a block.
    static Int dot(Int sum, Int w, Group x) {
        const auto* four = static_cast<const int32_t*>(x);
#if defined(__GNUC__)
        asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*four));
        return sum;
#else
        return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(*four));
#endif
    }
    static Int signed_bytes(const uint8_t* p) {
        return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }

    template <int BITS>
    using Dot = std::conditional_t<BITS == 6, HalvesDot<Avx512Vnni>, ByteDot<Avx512Vnni>>;
    using HalfScales = ByteScales<Avx512Vnni>;

    static Int minus(Int v, int32_t x) { return _mm512_sub_epi32(v, _mm512_set1_epi32(x)); }
    static Float to_float(Int v) { return _mm512_cvtepi32_ps(v); }
    static Float zero() { return _mm512_setzero_ps(); }
    static Float halves(const uint8_t* p) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    }
    static Float bytes(const uint8_t* p) {
        return to_float(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    }
    static Float negative(Float v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }
    static Float times(Float a, Float b) { return _mm512_mul_ps(a, b); }
    static Float by(Float a, float x) { return _mm512_mul_ps(a, _mm512_set1_ps(x)); }
    static Float add_product(Float sum, Float a, Float b) { return _mm512_fmadd_ps(a, b, sum); }
    static Float add_scaled(Float sum, Float a, float x) { return _mm512_fmadd_ps(a, _mm512_set1_ps(x), sum); }
    static Float floats(const void* p) { return _mm512_loadu_ps(p); }
    static Float set(float x) { return _mm512_set1_ps(x); }
    static Float larger(Float a, Float b) { return _mm512_max_ps(a, b); }
    static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    static Float magnitude(Float v) { return _mm512_abs_ps(v); }
    static float largest(Float v) { return _mm512_reduce_max_ps(v); }
    static float sum(Float v) { return _mm512_reduce_add_ps(v); }
    static void store_bytes(int8_t* p, Float v) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
    }
    // Squares of 4 by 4 in the quarters of vectors, then the quarters.
    static void transpose(Float* v) {
        Float w[LANES];
        for (int i = 0; i < LANES; i += 4) {
            const Float a = _mm512_unpacklo_ps(v[i], v[i + 1]), b = _mm512_unpackhi_ps(v[i], v[i + 1]);
            const Float c = _mm512_unpacklo_ps(v[i + 2], v[i + 3]), d = _mm512_unpackhi_ps(v[i + 2], v[i + 3]);
            w[i] = _mm512_shuffle_ps(a, c, 0x44);
            w[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
            w[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
            w[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
        }
        for (int i = 0; i < 4; ++i) {
            const Float a = _mm512_shuffle_f32x4(w[i], w[i + 4], 0x88), b = _mm512_shuffle_f32x4(w[i], w[i + 4], 0xdd);
            const Float c = _mm512_shuffle_f32x4(w[i + 8], w[i + 12], 0x88);
            const Float d = _mm512_shuffle_f32x4(w[i + 8], w[i + 12], 0xdd);
            v[i] = _mm512_shuffle_f32x4(a, c, 0x88);
            v[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
            v[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
            v[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
        }
    }
    static Float by_power(Float a, Float n) {
        const Int exponent = _mm512_slli_epi32(_mm512_castps_si512(n), 23);
        return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), exponent));
    }
    static Float where_above(Float x, float least, Float a) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, set(least), _CMP_GT_OQ), a);
    }
    static void store(float* p, Float v) { _mm512_storeu_ps(p, v); }
    // One row or two need new weights sooner than the second cache can give them; with more, there is time, and fetching
    // into the first one was slower by up to a fifth (Zen 4).
    template <int R>
    static void prefetch(const uint8_t* p, int bytes) {
        constexpr auto LEVEL = R <= 2 ? _MM_HINT_T0 : _MM_HINT_T1;
        for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), LEVEL);
    }
};

TileProduct avx512_vnni_product(Type type) { return tile_product<Avx512Vnni>(type); }

}  // namespace
}  // namespace edgespec
EDGESPEC_TARGET_END

namespace edgespec {
extern const Path AVX512_VNNI;
const Path AVX512_VNNI = {"avx512-vnni", Avx512Vnni::COLUMNS, has_avx512_vnni, avx512_vnni_product, attend<Avx512Vnni>, quantize_row<Avx512Vnni>};
}  // namespace edgespec

#endif
