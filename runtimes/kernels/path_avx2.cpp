#include "cpu.h"
#include "path.h"
#include "target.h"

#if defined(__x86_64__) || defined(_M_X64)

#include <immintrin.h>

EDGESPEC_TARGET("avx2,fma,f16c")
#include "vectors_avx2.h"
#include "attention_template.h"
#include "product_template.h"
#include "rows_template.h"

namespace edgespec {
static TileProduct avx2_product(Type type) { return tile_product<Avx2>(type); }
}  // namespace edgespec
EDGESPEC_TARGET_END

namespace edgespec {
extern const Path AVX2;
const Path AVX2 = {"avx2", Avx2::COLUMNS, has_avx2, avx2_product, attend<Avx2>, quantize_row<Avx2>};
}  // namespace edgespec

#endif
