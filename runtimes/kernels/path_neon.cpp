#include "cpu.h"
#include "path.h"
#include "target.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#if defined(__clang__)
EDGESPEC_TARGET("dotprod")
#else
EDGESPEC_TARGET("arch=armv8.2-a+dotprod")  // as arm_neon.h has it for the functions with these instructions
#endif
#include "attention_template.h"
#include "dot_template.h"
#include "product_template.h"
#include "rows_template.h"

namespace edgespec {

namespace {

// Vectors of 4 columns, two of them in a tile.
struct Neon {
    static constexpr int LANES = 4, COLUMNS = 8, ROWS = 4, SUMS = 16, BYTE_OFFSET = 0;
    static constexpr bool KEEPS = true;
    using Int = int32x4_t;
    using Group = Int;
    using Float = float32x4_t;

    static uint8x16_t bytes_of(Int v) { return vreinterpretq_u8_s32(v); }
    static Int from_bytes(uint8x16_t v) { return vreinterpretq_s32_u8(v); }
    static Int load(const uint8_t* p) { return from_bytes(vld1q_u8(p)); }
    static Int load_bytes(const uint8_t* p) { return load(p); }
    static Int low_nibbles(Int v) { return from_bytes(vandq_u8(bytes_of(v), vdupq_n_u8(15))); }
    static Int high_nibbles(Int v) { return from_bytes(vshrq_n_u8(bytes_of(v), 4)); }
    static Int or_bits(Int a, Int b) { return vorrq_s32(a, b); }
    template <int SHIFT, int MASK>
    static Int fifth_bits(Int v) {
        uint8x16_t shifted = bytes_of(v);
        if constexpr (SHIFT > 4) shifted = vshrq_n_u8(shifted, SHIFT - 4);
        if constexpr (SHIFT < 4) shifted = vshlq_n_u8(shifted, 4 - SHIFT);
        return from_bytes(vandq_u8(shifted, vdupq_n_u8(MASK << 4)));
    }
    static Int group(const void* p) {
        int32_t four;
        std::memcpy(&four, p, sizeof four);
        return vdupq_n_s32(four);
    }

    static Int no_sum() { return vdupq_n_s32(0); }
    static Int plus(Int a, Int b) { return vaddq_s32(a, b); }
    static Int multiply(Int a, Int b) { return vmulq_s32(a, b); }
    // The instruction takes signed bytes on both sides; weights without a sign are below 64.
    static Int dot(Int sum, Int w, Int x) {
        return vdotq_s32(sum, vreinterpretq_s8_s32(w), vreinterpretq_s8_s32(x));
    }
    static Int signed_bytes(const uint8_t* p) {
        return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(four_bytes(p)))));
    }

    template <int BITS>
    using Dot = std::conditional_t<BITS == 6, HalvesDot<Neon>, ByteDot<Neon>>;
    using HalfScales = ByteScales<Neon>;

    static Int minus(Int v, int32_t x) { return vsubq_s32(v, vdupq_n_s32(x)); }
    static Float to_float(Int v) { return vcvtq_f32_s32(v); }
    static Float zero() { return vdupq_n_f32(0); }
    static Float halves(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
    static Float bytes(const uint8_t* p) { return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(p))))); }
    static Float negative(Float v) { return vnegq_f32(v); }
    static Float times(Float a, Float b) { return vmulq_f32(a, b); }
    static Float by(Float a, float x) { return vmulq_n_f32(a, x); }
    static Float add_product(Float sum, Float a, Float b) { return vfmaq_f32(sum, a, b); }
    static Float add_scaled(Float sum, Float a, float x) { return vfmaq_n_f32(sum, a, x); }
    static Float floats(const void* p) { return vld1q_f32(static_cast<const float*>(p)); }
    static Float set(float x) { return vdupq_n_f32(x); }
    static Float larger(Float a, Float b) { return vmaxq_f32(a, b); }
    static Float add(Float a, Float b) { return vaddq_f32(a, b); }
    static Float magnitude(Float v) { return vabsq_f32(v); }
    static float largest(Float v) { return vmaxvq_f32(v); }
    static float sum(Float v) { return vaddvq_f32(v); }
    static void store_bytes(int8_t* p, Float v) {
        const int16x4_t words = vmovn_s32(vcvtq_s32_f32(v));
        const int32_t four = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(words, words))), 0);
        std::memcpy(p, &four, sizeof four);
    }
    static void transpose(Float* v) {
        const float32x4x2_t a = vtrnq_f32(v[0], v[1]), b = vtrnq_f32(v[2], v[3]);
        v[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
        v[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
        v[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
        v[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
    }
    static Float by_power(Float a, Float n) {
        const Int exponent = vshlq_n_s32(vreinterpretq_s32_f32(n), 23);
        return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), exponent));
    }
    static Float where_above(Float x, float least, Float a) {
        return vreinterpretq_f32_u32(vandq_u32(vcgtq_f32(x, set(least)), vreinterpretq_u32_f32(a)));
    }
    static void store(float* p, Float v) { vst1q_f32(p, v); }
    template <int R>
    static void prefetch(const uint8_t* p, int bytes) {
        for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
    }

private:
    static uint8x8_t four_bytes(const uint8_t* p) {
        uint32_t word;
        std::memcpy(&word, p, sizeof word);
        return vreinterpret_u8_u32(vdup_n_u32(word));
    }
};

TileProduct neon_product(Type type) { return tile_product<Neon>(type); }

}  // namespace
}  // namespace edgespec
EDGESPEC_TARGET_END

namespace edgespec {
extern const Path NEON_DOT;
const Path NEON_DOT = {"neon-dotprod", Neon::COLUMNS, has_neon_dot, neon_product, attend<Neon>, quantize_row<Neon>};
}  // namespace edgespec

#endif
