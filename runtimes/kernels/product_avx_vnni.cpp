#include "cpu.h"
#include "product.h"
#include "target.h"

#if defined(__x86_64__) || defined(_M_X64)

#include <immintrin.h>

#include <cstring>

EDGESPEC_TARGET("avx2,fma,f16c,avxvnni")
#include "product_avx2.h"
#include "product_template.h"

namespace edgespec {

namespace {

struct AvxVnni : Avx2 {
    static constexpr int BYTE_OFFSET = 128;

    // Signed bytes as unsigned ones, 128 larger, which is what the instruction takes.
    static Int load_bytes(const uint8_t* p) { return _mm256_xor_si256(load(p), _mm256_set1_epi8(-128)); }

    template <int BITS, int FROM, int TO>
    static Int dot(const Int* w, const int8_t* q) {
        Int even = _mm256_setzero_si256(), odd = even;
        for (int g = FROM; g < TO; g += 2) {
            even = _mm256_dpbusd_avx_epi32(even, w[g], group(q, g));
            odd = _mm256_dpbusd_avx_epi32(odd, w[g + 1], group(q, g + 1));
        }
        return _mm256_add_epi32(even, odd);
    }
};

TileProduct avx_vnni_product(Type type) { return tile_product<AvxVnni>(type); }

}  // namespace
}  // namespace edgespec
EDGESPEC_TARGET_END

namespace edgespec {
extern const Path AVX_VNNI;
const Path AVX_VNNI = {"avx-vnni", AvxVnni::COLUMNS, has_avx_vnni, avx_vnni_product};
}  // namespace edgespec

#endif
