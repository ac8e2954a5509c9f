// The parts for themselves, for tests and benchmarks.
#include <cstdlib>
#include <vector>

#include "export.h"
#include "layout.h"
#include "product.h"
#include "rows.h"

using namespace edgespec;

// Names of the paths that run here, the fastest first; nullptr after the last.
EDGESPEC_API const char* edgespec_path(int index) {
    int count;
    const Path* const* paths = all_paths(&count);
    for (int i = 0; i < count; ++i)
        if (paths[i]->runs_here() && index-- == 0) return paths[i]->name;
    return nullptr;
}

EDGESPEC_API size_t edgespec_matrix_bytes(int type, int64_t inputs, int64_t outputs, const char* path) {
    return matrix_bytes(Type(type), inputs, outputs, choose_path(path)->columns);
}

EDGESPEC_API void edgespec_repack(int type, const uint8_t* source, int64_t inputs, int64_t outputs, const char* path, uint8_t* target) {
    repack(Type(type), source, inputs, outputs, choose_path(path)->columns, target);
}

EDGESPEC_API void edgespec_unpack(int type, const uint8_t* tiles, int64_t inputs, int64_t outputs, const char* path, float* target) {
    for (int64_t output = 0; output < outputs; ++output)
        unpack_column(Type(type), tiles, inputs, choose_path(path)->columns, output, target + output * inputs);
}

// target (rows, outputs) = rows (rows, inputs) times the matrix.
EDGESPEC_API void edgespec_multiply(int type, const uint8_t* tiles, int64_t inputs, int64_t outputs, const char* path,
                       const float* rows, int64_t count, float* target) {
    const Path* chosen = choose_path(path);
    const TileProduct product = chosen->product(Type(type));
    const size_t tile = tile_bytes(format_of(Type(type)), inputs, chosen->columns);
    std::vector<RowBlock> blocks(size_t(count * (inputs / BLOCK)));
    for (int64_t r = 0; r < count; ++r) quantize_row(rows + r * inputs, inputs, blocks.data() + r * (inputs / BLOCK));
    for (int64_t column = 0; column < outputs; column += chosen->columns)
        product(tiles + size_t(column / chosen->columns) * tile, inputs, blocks.data(), count, target + column, outputs,
                int(outputs - column < chosen->columns ? outputs - column : chosen->columns));
}
