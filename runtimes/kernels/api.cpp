// The parts for themselves, for tests and benchmarks.
#include <cstring>
#include <vector>

#include "export.h"
#include "layout.h"
#include "path.h"
#include "work.h"

using namespace edgespec;

namespace {

// A contiguous tensor.
Tensor tensor(int type, const void* data, int64_t n0, int64_t n1, int64_t n2) {
    Tensor made{};
    made.type = type;
    made.data = const_cast<void*>(data);
    const int64_t ne[4] = {n0, n1, n2, 1};
    size_t size = type == TYPE_F16 ? 2 : 4;
    for (int i = 0; i < 4; size *= size_t(ne[i++])) {
        made.ne[i] = ne[i];
        made.nb[i] = size;
    }
    return made;
}

}  // namespace

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
    std::vector<RowBlock> blocks(size_t(count * (inputs / BLOCK)));
    for (int64_t r = 0; r < count; ++r) {
        const RowPlace place(r, 0, count, inputs / BLOCK);
        chosen->quantize(rows + r * inputs, inputs, blocks.data() + place.first, place.step);
    }
    Product product{chosen->product(Type(type)), chosen->columns, tile_bytes(format_of(Type(type)), inputs, chosen->columns),
                    tiles, inputs, outputs, count, blocks.data(), target};
    Product::run(nullptr, 0, 1, &product);
}

// target (rows, heads, size of values) from q (heads, rows, size), keys and values in half precision (key heads, cells,
// size) and mask (rows, cells), with the queries of each head of keys in pieces of `piece`.
EDGESPEC_API void edgespec_attend(const char* path, const float* q, const uint16_t* k, const uint16_t* v, const uint16_t* mask,
                                  int64_t rows, int64_t heads, int64_t key_heads, int64_t cells, int64_t size,
                                  int64_t value_size, float scale, int64_t piece, float* target) {
    Tensor tensors[] = {tensor(TYPE_F32, q, size, rows, heads), tensor(TYPE_F16, k, size, cells, key_heads),
                        tensor(TYPE_F16, v, value_size, cells, key_heads), tensor(TYPE_F16, mask, cells, rows, 1)};
    Tensor node = tensor(TYPE_F32, target, value_size, heads, rows);
    std::memcpy(node.op_params, &scale, sizeof scale);
    for (int i = 0; i < 4; ++i) node.src[i] = &tensors[i];
    if (!is_plain_attention(node)) return;
    const int64_t queries = rows * (heads / key_heads);
    for (int64_t head = 0; head < key_heads; ++head)
        for (int64_t first = 0; first < queries; first += piece)
            choose_path(path)->attention({&node, 0, head, first, piece < queries - first ? piece : queries - first});
}
