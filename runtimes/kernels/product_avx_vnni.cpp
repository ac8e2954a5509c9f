#include "cpu.h"
#include "product.h"
#include "target.h"

#if defined(__x86_64__) || defined(_M_X64)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

EDGESPEC_TARGET("avx2,fma,f16c,avxvnni")
#include "product_avx2.h"
#include "attention_template.h"
#include "product_template.h"

namespace edgespec {

namespace {

struct AvxVnni : Avx2 {
    static constexpr int BYTE_OFFSET = 128;

    // Signed bytes as unsigned ones, 128 larger, which is what the instruction takes.
    static Int load_bytes(const uint8_t* p) { return _mm256_xor_si256(load(p), _mm256_set1_epi8(-128)); }

    static Int two_groups(Int sum, Int a, Int b, Int x, Int y) {
        return _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(sum, a, x), b, y);
    }

    template <int BITS, class = void>
    struct Dot {
        Int sum;

        template <int V>
        void add(Int a, Int b, Int x, Int y) {
            sum = two_groups(V == 0 ? _mm256_setzero_si256() : sum, a, b, x, y);
        }
        Int total() const { return sum; }
    };

    template <class Any>
    struct Dot<6, Any> {
        Int half[2];

        template <int V>
        void add(Int a, Int b, Int x, Int y, const HalfScales&) {
            half[V / 2] = two_groups(V % 2 == 0 ? _mm256_setzero_si256() : half[V / 2], a, b, x, y);
        }
        // Sums and scales of a half are below 2^16 in size, so products of their lower 32 bits are exact.
        Int total(const HalfScales& scales, const int16_t* sums) const {
            return _mm256_add_epi32(weighted(half[0], sums[0], scales.first), weighted(half[1], sums[1], scales.second));
        }

    private:
        static Int weighted(Int sum, int32_t inputs, Int scale) {
            return _mm256_mullo_epi32(minus(sum, 32 * inputs), _mm256_srai_epi32(scale, 16));
        }
    };
};

TileProduct avx_vnni_product(Type type) { return tile_product<AvxVnni>(type); }

}  // namespace
}  // namespace edgespec
EDGESPEC_TARGET_END

namespace edgespec {
extern const Path AVX_VNNI;
const Path AVX_VNNI = {"avx-vnni", AvxVnni::COLUMNS, has_avx_vnni, avx_vnni_product, attend<AvxVnni>};
}  // namespace edgespec

#endif
