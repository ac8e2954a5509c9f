#include "cpu.h"

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#if defined(_MSC_VER)
#include <immintrin.h>
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace edgespec {

#if defined(__x86_64__) || defined(_M_X64)

namespace {

struct Registers {
    uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
    Registers r;
#if defined(_MSC_VER)
    int all[4];
    __cpuid(all, 0);
    if (uint32_t(all[0]) < leaf) return r;
    __cpuidex(all, int(leaf), int(subleaf));
    r = {uint32_t(all[0]), uint32_t(all[1]), uint32_t(all[2]), uint32_t(all[3])};
#else
    __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);  // leaves zeros where there is no such leaf
#endif
    return r;
}

// Which registers the system saves when it switches threads.
uint64_t saved_registers() {
    if (!(cpuid(1, 0).c >> 27 & 1)) return 0;
#if defined(_MSC_VER)
    return _xgetbv(0);
#else
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t(high) << 32 | low;
#endif
}

bool has(uint32_t value, int bit) { return value >> bit & 1; }

}  // namespace

bool has_avx2() {
    const Registers one = cpuid(1, 0);
    return (saved_registers() & 6) == 6 && has(one.c, 12) && has(one.c, 29) && has(cpuid(7, 0).b, 5);
}

bool has_avx_vnni() { return has_avx2() && has(cpuid(7, 1).a, 4); }

bool has_avx512_vnni() {
    const Registers seven = cpuid(7, 0);
    const bool wide = has(seven.b, 16) && has(seven.b, 17) && has(seven.b, 30) && has(seven.b, 31);
    return has_avx2() && (saved_registers() & 0xe6) == 0xe6 && wide && has(seven.c, 11);
}

bool has_neon_dot() { return false; }

#else

bool has_avx2() { return false; }
bool has_avx_vnni() { return false; }
bool has_avx512_vnni() { return false; }

bool has_neon_dot() {
#if defined(__aarch64__) && defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#elif defined(__aarch64__) && defined(__APPLE__)
    return true;  // since the M1
#else
    return false;
#endif
}

#endif

}  // namespace edgespec
