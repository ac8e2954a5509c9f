#include "work.h"

#include <algorithm>

namespace edgespec {

namespace {

constexpr int64_t SHARES = 4;           // a thread takes this part of its part of what is left
constexpr int64_t LEAST_SHARE = 32768;  // bytes of weights in a piece

const float* row_of(const Tensor& tensor, int64_t r) {
    const int64_t i1 = r % tensor.ne[1], i2 = r / tensor.ne[1] % tensor.ne[2], i3 = r / tensor.ne[1] / tensor.ne[2];
    const size_t offset = size_t(i1) * tensor.nb[1] + size_t(i2) * tensor.nb[2] + size_t(i3) * tensor.nb[3];
    return reinterpret_cast<const float*>(static_cast<const uint8_t*>(tensor.data) + offset);
}

// Tiles for a thread: ever fewer, so that one that is held up does less and none waits long at the end.
bool take(std::atomic<int64_t>& next, int64_t tiles, int64_t least, int64_t parts, int64_t& from, int64_t& to) {
    from = next.load(std::memory_order_relaxed);
    do {
        if (from >= tiles) return false;
        to = std::min(tiles, from + std::max(least, (tiles - from) / parts));
    } while (!next.compare_exchange_weak(from, to, std::memory_order_relaxed));
    return true;
}

}  // namespace

int64_t row_count(const Tensor& tensor) { return tensor.ne[1] * tensor.ne[2] * tensor.ne[3]; }

void Quantization::run(Tensor*, int thread, int threads, void* self) {
    const Quantization& work = *static_cast<Quantization*>(self);
    const int64_t blocks = work.source->ne[0] / BLOCK, rows = row_count(*work.source);
    const int64_t from = blocks * thread / threads, to = blocks * (thread + 1) / threads;
    for (int64_t row = 0; row < rows; ++row) {
        const RowPlace place(row, from, rows, blocks);
        work.quantize(row_of(*work.source, row) + from * BLOCK, (to - from) * BLOCK, work.rows + place.first, place.step);
    }
}

void Product::run(Tensor*, int, int threads, void* self) {
    Product& work = *static_cast<Product*>(self);
    const int64_t tiles = (work.outputs + work.columns - 1) / work.columns, blocks = work.inputs / BLOCK;
    const int64_t least = LEAST_SHARE / int64_t(work.tile_size) + 1;
    int64_t from, to;
    while (take(work.next, tiles, least, threads == 1 ? 1 : SHARES * threads, from, to)) {
        for (int64_t row = 0; row < work.count; row += MAX_ROWS) {
            const int64_t rows = std::min<int64_t>(MAX_ROWS, work.count - row);
            for (int64_t tile = from; tile < to; ++tile) {
                const int64_t column = tile * work.columns;
                work.multiply(work.tiles + size_t(tile) * work.tile_size, work.inputs, work.rows + row * blocks, rows,
                              work.target + row * work.outputs + column, work.outputs,
                              int(std::min<int64_t>(work.columns, work.outputs - column)));
            }
        }
    }
}

void Attending::run(Tensor*, int, int threads, void* self) {
    Attending& work = *static_cast<Attending*>(self);
    const Tensor &q = *work.node->src[0], &k = *work.node->src[1];
    const int64_t queries = q.ne[1] * (q.ne[2] / k.ne[2]), groups = k.ne[2] * q.ne[3];  // of queries with the same keys
    int64_t size = MAX_QUERIES;
    while (size > 1 && groups * ((queries + size - 1) / size) < threads) size /= 2;
    const int64_t pieces = (queries + size - 1) / size;
    for (;;) {
        const int64_t i = work.next.fetch_add(1, std::memory_order_relaxed);
        if (i >= groups * pieces) return;
        // pieces of equal size: with 17 queries rather 9 and 8 than 16 and 1
        const int64_t group = i / pieces, from = queries * (i % pieces) / pieces, to = queries * (i % pieces + 1) / pieces;
        work.attend({work.node, group / k.ne[2], group % k.ne[2], from, to - from});
    }
}

void Lookup::run(Tensor*, int thread, int threads, void* self) {
    const Lookup& work = *static_cast<Lookup*>(self);
    const Tensor &node = *work.node, &weights = *node.src[0], &indices = *node.src[1];
    for (int64_t r = thread; r < row_count(node); r += threads) {
        const size_t place = size_t(r % indices.ne[0]) * indices.nb[0] + size_t(r / indices.ne[0]) * indices.nb[1];
        const int32_t index = *reinterpret_cast<const int32_t*>(static_cast<const uint8_t*>(indices.data) + place);
        unpack_column(work.type, static_cast<const uint8_t*>(weights.data), weights.ne[0], work.columns, index,
                      const_cast<float*>(row_of(node, r)));
    }
}

}  // namespace edgespec
