// Plain C++, for processors that no other path is for, and to hold the others against: they give the same bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "attention_template.h"
#include "dot_template.h"
#include "path.h"
#include "product_template.h"
#include "rows_template.h"

namespace edgespec {

namespace {

struct Plain {
    static constexpr int LANES = 8, COLUMNS = 8, ROWS = 4, SUMS = 8, BYTE_OFFSET = 0;
    static constexpr bool KEEPS = true;
    union Int {
        int32_t sums[LANES];
        uint8_t bytes[LANES * 4];
    };
    using Group = const int8_t*;
    using Float = std::array<float, LANES>;

    static Int load(const uint8_t* p) {
        Int v;
        std::memcpy(v.bytes, p, sizeof v.bytes);
        return v;
    }
    static Int load_bytes(const uint8_t* p) { return load(p); }
    template <class F>
    static Int each(F value) {
        Int v;
        for (int i = 0; i < LANES * 4; ++i) v.bytes[i] = uint8_t(value(i));
        return v;
    }
    template <class F>
    static Int each_lane(F value) {
        Int v;
        for (int i = 0; i < LANES; ++i) v.sums[i] = value(i);
        return v;
    }
    static Int low_nibbles(const Int& a) {
        return each([&](int i) { return a.bytes[i] & 15; });
    }
    static Int high_nibbles(const Int& a) {
        return each([&](int i) { return a.bytes[i] >> 4; });
    }
    static Int or_bits(const Int& a, const Int& b) {
        return each([&](int i) { return a.bytes[i] | b.bytes[i]; });
    }
    template <int SHIFT, int MASK>
    static Int fifth_bits(const Int& a) {
        return each([&](int i) { return (a.bytes[i] >> SHIFT & MASK) << 4; });
    }
    static const int8_t* group(const int8_t* p) { return p; }

    static Int no_sum() { return {}; }
    static Int plus(const Int& a, const Int& b) {
        return each_lane([&](int i) { return a.sums[i] + b.sums[i]; });
    }
    static Int multiply(const Int& a, const Int& b) {
        return each_lane([&](int i) { return a.sums[i] * b.sums[i]; });
    }
    // Weights without a sign are below 64.
    static Int dot(Int sum, const Int& w, const int8_t* x) {
        for (int i = 0; i < LANES * 4; ++i) sum.sums[i / 4] += int8_t(w.bytes[i]) * x[i % 4];
        return sum;
    }
    static Int signed_bytes(const uint8_t* p) {
        return each_lane([&](int i) { return int8_t(p[i]); });
    }

    template <int BITS>
    using Dot = std::conditional_t<BITS == 6, HalvesDot<Plain>, ByteDot<Plain>>;
    using HalfScales = ByteScales<Plain>;

    static Int minus(Int v, int32_t x) {
        for (int32_t& lane : v.sums) lane -= x;
        return v;
    }

    template <class F>
    static Float lanes(F value) {
        Float v;
        for (int i = 0; i < LANES; ++i) v[size_t(i)] = value(size_t(i));
        return v;
    }
    static Float to_float(const Int& a) {
        return lanes([&](size_t i) { return float(a.sums[i]); });
    }
    static Float zero() { return {}; }
    static Float halves(const uint8_t* p) {
        return lanes([&](size_t i) { return half_to_float(uint16_t(p[2 * i] | p[2 * i + 1] << 8)); });
    }
    static Float bytes(const uint8_t* p) {
        return lanes([&](size_t i) { return float(p[i]); });
    }
    static Float negative(const Float& a) {
        return lanes([&](size_t i) { return -a[i]; });
    }
    static Float times(const Float& a, const Float& b) {
        return lanes([&](size_t i) { return a[i] * b[i]; });
    }
    static Float by(const Float& a, float x) {
        return lanes([&](size_t i) { return a[i] * x; });
    }
    static Float add_product(const Float& sum, const Float& a, const Float& b) {
        return lanes([&](size_t i) { return std::fma(a[i], b[i], sum[i]); });
    }
    static Float add_scaled(const Float& sum, const Float& a, float x) {
        return lanes([&](size_t i) { return std::fma(a[i], x, sum[i]); });
    }
    static Float floats(const void* p) {
        Float v;
        std::memcpy(v.data(), p, sizeof v);
        return v;
    }
    static Float set(float x) {
        return lanes([&](size_t) { return x; });
    }
    static Float larger(const Float& a, const Float& b) {
        return lanes([&](size_t i) { return a[i] > b[i] ? a[i] : b[i]; });
    }
    static Float add(const Float& a, const Float& b) {
        return lanes([&](size_t i) { return a[i] + b[i]; });
    }
    static Float magnitude(const Float& v) {
        return lanes([&](size_t i) { return std::fabs(v[i]); });
    }
    static float largest(const Float& v) { return *std::max_element(v.begin(), v.end()); }
    static float sum(const Float& x) { return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7])); }
    static void store_bytes(int8_t* p, const Float& v) {
        for (float x : v) *p++ = std::fabs(x) <= 127 ? int8_t(x) : int8_t(0);
    }
    static void transpose(Float* v) {
        for (size_t i = 0; i < LANES; ++i)
            for (size_t j = 0; j < i; ++j) std::swap(v[i][j], v[j][i]);
    }
    static Float by_power(const Float& a, const Float& n) {
        return lanes([&](size_t i) { return std::ldexp(a[i], int(n[i] - 12582912.0f)); });
    }
    static Float where_above(const Float& x, float least, const Float& a) {
        return lanes([&](size_t i) { return x[i] > least ? a[i] : 0.0f; });
    }
    static void store(float* p, const Float& v) { std::memcpy(p, v.data(), sizeof v); }
    template <int R>
    static void prefetch(const uint8_t*, int) {}
};

bool anywhere() { return true; }

TileProduct plain_product(Type type) { return tile_product<Plain>(type); }

}  // namespace

extern const Path PLAIN;
const Path PLAIN = {"plain", Plain::COLUMNS, anywhere, plain_product, attend<Plain>, quantize_row<Plain>};

}  // namespace edgespec
