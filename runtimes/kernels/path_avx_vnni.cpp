#include "cpu.h"
#include "path.h"
#include "target.h"

#if defined(__x86_64__) || defined(_M_X64)

#include <immintrin.h>

EDGESPEC_TARGET("avx2,fma,f16c,avxvnni")
#include "vectors_avx2.h"
#include "attention_template.h"
#include "dot_template.h"
#include "product_template.h"
#include "rows_template.h"

namespace edgespec {

namespace {

struct AvxVnni : Avx2 {
    static constexpr int BYTE_OFFSET = 128;

    // Signed bytes as unsigned ones, 128 larger, which is what the instruction takes.
    static Int load_bytes(const uint8_t* p) { return _mm256_xor_si256(load(p), _mm256_set1_epi8(-128)); }

    static Int no_sum() { return _mm256_setzero_si256(); }
    static Int plus(Int a, Int b) { return _mm256_add_epi32(a, b); }
    static Int multiply(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
    static Int dot(Int sum, Int w, Int x) { return _mm256_dpbusd_avx_epi32(sum, w, x); }

    template <int BITS>
    using Dot = std::conditional_t<BITS == 6, HalvesDot<AvxVnni>, ByteDot<AvxVnni>>;
    using HalfScales = ByteScales<AvxVnni>;
};

TileProduct avx_vnni_product(Type type) { return tile_product<AvxVnni>(type); }

}  // namespace
}  // namespace edgespec
EDGESPEC_TARGET_END

namespace edgespec {
extern const Path AVX_VNNI;
const Path AVX_VNNI = {"avx-vnni", AvxVnni::COLUMNS, has_avx_vnni, avx_vnni_product, attend<AvxVnni>, quantize_row<AvxVnni>};
}  // namespace edgespec

#endif
