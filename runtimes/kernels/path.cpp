#include "path.h"

#include <cstring>

namespace edgespec {

#if defined(__x86_64__) || defined(_M_X64)
extern const Path AVX2, AVX_VNNI, AVX512_VNNI;
#elif defined(__aarch64__)
extern const Path NEON_DOT;
#endif
extern const Path PLAIN;

const Path* const* all_paths(int* count) {
    static const Path* const PATHS[] = {
#if defined(__x86_64__) || defined(_M_X64)
        &AVX512_VNNI, &AVX_VNNI, &AVX2,
#elif defined(__aarch64__)
        &NEON_DOT,
#endif
        &PLAIN,
    };
    *count = int(sizeof PATHS / sizeof *PATHS);
    return PATHS;
}

const Path* choose_path(const char* name) {
    int count;
    const Path* const* paths = all_paths(&count);
    for (int i = 0; i < count; ++i)
        if ((name == nullptr || std::strcmp(name, paths[i]->name) == 0) && paths[i]->runs_here()) return paths[i];
    return nullptr;
}

}  // namespace edgespec
