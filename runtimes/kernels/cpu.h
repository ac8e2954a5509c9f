// What this processor and its system can do.
#pragma once

namespace edgespec {

bool has_avx2();         // and FMA and F16C
bool has_avx_vnni();     // and all of the above
bool has_avx512_vnni();  // and AVX-512 F, BW, DQ and VL
bool has_neon_dot();

}  // namespace edgespec
