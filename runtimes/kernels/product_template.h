// The product over one tile, written once for all instruction sets.
//
// A tile is cut into parts as wide as a vector. A group of several rows is multiplied at once, with several parts: each
// vector of weights, once loaded, serves all rows, and 4 inputs of a row, once loaded, serve all parts.
//
// `Isa` supplies vectors of int32 and float, a lane for each column of a part:
//
//   LANES, COLUMNS, ROWS       columns of a vector; columns of a tile (a multiple); rows at once, as registers allow
//   KEEPS                      whether reading unpacked weights back is faster than unpacking them once more
//   Int, Float, Group          the vectors, and what `group` gives
//   load(p), load_bytes(p)     LANES * 4 bytes; signed bytes, BYTE_OFFSET larger
//   low_nibbles(v), high_nibbles(v), or_bits(a, b)
//   fifth_bits<SHIFT, MASK>(v) ((v >> SHIFT) & MASK) << 4, for every byte
//   group(p)                   4 bytes, in every lane
//   HalfScales(p, q)           Q6_K's scales of both halves of a block, from signed bytes; HalfScales() is left unset
//   Dot<BITS>                  a sum of products, of weights that have so many bits, without a sign up to 6:
//     add<V>(a, b, x, y)       adds those of groups 2V and 2V + 1: weights a with inputs x, b with y; in Dot<6> with
//                              HalfScales as a fifth argument
//     total()                  int32; in Dot<6> total(scales, sums): weights 32 smaller, `sums` the inputs' by halves
//   minus(v, int), to_float(v), zero()
//   halves(p), bytes(p)        floats from half precision or bytes
//   negative(a), times(a, b), by(a, float), add_product(sum, a, b), add_scaled(sum, a, float)
//   store(p, v)
//   prefetch<R>(p, bytes)      from memory, while R rows are multiplied
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "product.h"

namespace edgespec {

// A block as it lies in a tile. Integers are unpacked two groups at a time, for part p of the tile.
template <class Isa, Type TYPE>
class PackedBlock {
public:
    using Int = typename Isa::Int;
    using Float = typename Isa::Float;
    using HalfScales = typename Isa::HalfScales;

    PackedBlock(const uint8_t* block, const uint8_t* factors)
        : nibbles_(block), factors_(factors), scales_(block + (nibble_bytes(F) + high_bytes(F)) * Isa::COLUMNS) {}

    // The weights of groups 2V and 2V + 1.
    template <int V>
    void unpack(int p, Int& a, Int& b) const {
        if constexpr (F.bits == 8) {
            a = Isa::load_bytes(at(p, 2 * V));
            b = Isa::load_bytes(at(p, 2 * V + 1));
        } else {
            const Int both = Isa::load(at(p, V));
            a = Isa::low_nibbles(both);
            b = Isa::high_nibbles(both);
        }
        if constexpr (F.bits == 5) add_bits<2 * V, 1>(at(p, HIGH), a, b);
        if constexpr (F.bits == 6) add_bits<4 * (V % 2), 3>(at(p, HIGH + V / 2), a, b);
    }

    HalfScales half_scales(int p) const {
        return HalfScales(scales_ + column(p), scales_ + Isa::COLUMNS + column(p));
    }

    // What integer sums are multiplied with; those of Q6_K, in which their scales are, by what the whole run has.
    Float scale(int p) const {
        if constexpr (F.super)
            return Isa::times(Isa::halves(factors_ + 2 * column(p)), Isa::bytes(scales_ + column(p)));
        else return Isa::halves(scales_ + 2 * column(p));
    }

    // What is added for each 1 among the inputs.
    Float minimum(int p) const {
        const int second = Isa::COLUMNS + column(p);
        if constexpr (F.super)
            return Isa::negative(Isa::times(Isa::halves(factors_ + 2 * second), Isa::bytes(scales_ + second)));
        else return Isa::halves(scales_ + 2 * second);
    }

private:
    static constexpr Format F = format_of(TYPE);
    static constexpr int HIGH = nibble_bytes(F) / 4;  // vectors before those with the bits beyond the fourth

    static int column(int p) { return p * Isa::LANES; }
    const uint8_t* at(int p, int vector) const { return nibbles_ + 4 * (vector * Isa::COLUMNS + column(p)); }

    template <int SHIFT, int MASK>
    static void add_bits(const uint8_t* vector, Int& a, Int& b) {
        const Int high = Isa::load(vector);
        a = Isa::or_bits(a, Isa::template fifth_bits<SHIFT, MASK>(high));
        b = Isa::or_bits(b, Isa::template fifth_bits<SHIFT + (MASK == 3 ? 2 : 1), MASK>(high));
    }

    const uint8_t *nibbles_, *factors_, *scales_;
};

// The blocks of up to 256 inputs as they lie in a tile: a K type's super-block.
template <class Isa, Type TYPE>
class PackedRun {
public:
    explicit PackedRun(const uint8_t* tile) : factors_(tile), blocks_(tile + factor_bytes(F) * Isa::COLUMNS) {}

    PackedBlock<Isa, TYPE> operator[](int64_t i) const { return {blocks_ + i * BYTES, factors_}; }
    const uint8_t* end(int64_t blocks) const { return blocks_ + blocks * BYTES; }

    // What all sums of Q6_K are multiplied with.
    typename Isa::Float factor(int p) const { return Isa::halves(factors_ + 2 * p * Isa::LANES); }

private:
    static constexpr Format F = format_of(TYPE);
    static constexpr int BYTES = block_bytes(F) * Isa::COLUMNS;

    const uint8_t *factors_, *blocks_;
};

// What a PackedBlock gives, kept in the nearest cache for further groups of rows.
template <class Isa, Type TYPE>
struct UnpackedBlock {
    using Int = typename Isa::Int;
    using Float = typename Isa::Float;
    using HalfScales = typename Isa::HalfScales;
    static constexpr int PARTS = Isa::COLUMNS / Isa::LANES;

    Int weights[GROUPS][PARTS];
    Float scales[PARTS], minima[PARTS];
    HalfScales halves[PARTS];

    template <int V>
    void unpack(int p, Int& a, Int& b) const {
        a = weights[2 * V][p];
        b = weights[2 * V + 1][p];
    }
    HalfScales half_scales(int p) const { return halves[p]; }
    Float scale(int p) const { return scales[p]; }
    Float minimum(int p) const { return minima[p]; }
};

// Keeps what the first group of rows unpacks.
template <class Isa, Type TYPE>
class KeepingBlock {
public:
    using Int = typename Isa::Int;
    using Float = typename Isa::Float;
    using HalfScales = typename Isa::HalfScales;

    KeepingBlock(const PackedBlock<Isa, TYPE>& packed, UnpackedBlock<Isa, TYPE>& kept) : packed_(packed), kept_(kept) {
        if constexpr (TYPE == Type::Q6_K)
            for (int p = 0; p < kept.PARTS; ++p) kept.halves[p] = packed.half_scales(p);
    }

    template <int V>
    void unpack(int p, Int& a, Int& b) const {
        packed_.template unpack<V>(p, a, b);
        kept_.weights[2 * V][p] = a;
        kept_.weights[2 * V + 1][p] = b;
    }
    HalfScales half_scales(int p) const { return kept_.halves[p]; }
    Float scale(int p) const { return kept_.scales[p] = packed_.scale(p); }
    Float minimum(int p) const { return kept_.minima[p] = packed_.minimum(p); }

private:
    PackedBlock<Isa, TYPE> packed_;
    UnpackedBlock<Isa, TYPE>& kept_;
};

template <class Isa, Type TYPE>
using UnpackedRun = UnpackedBlock<Isa, TYPE>[SUPER / BLOCK];

template <class Isa, Type TYPE>
struct KeepingRun {
    PackedRun<Isa, TYPE> packed;
    UnpackedRun<Isa, TYPE>& kept;

    KeepingBlock<Isa, TYPE> operator[](int64_t i) const { return {packed[i], kept[i]}; }
};

// The products of ROWS rows with one block of all parts.
template <class Isa, Type TYPE, int ROWS, class Block>
class BlockProducts {
public:
    static constexpr int PARTS = Isa::COLUMNS / Isa::LANES;
    using Float = typename Isa::Float;

    BlockProducts(const Block& block, const RowBlock* rows) : block_(block), rows_(rows) {
        add<0>();
        add<1>();
        add<2>();
        add<3>();
    }

    void add_to(Float (&sums)[PARTS][ROWS]) const {
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) {
            Float scale, minimum;
            if constexpr (TYPE != Type::Q6_K) scale = block_.scale(p);
            if constexpr (F.minimum) minimum = block_.minimum(p);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r) {
                const RowBlock& row = rows_[r];
                const Float sum = Isa::to_float(total(p, r, row));
                if constexpr (TYPE == Type::Q6_K) sums[p][r] = Isa::add_scaled(sums[p][r], sum, row.scale);
                else sums[p][r] = Isa::add_product(sums[p][r], sum, Isa::by(scale, row.scale));
                if constexpr (F.minimum) sums[p][r] = Isa::add_scaled(sums[p][r], minimum, row.scaled_sum);
            }
        }
    }

private:
    static constexpr Format F = format_of(TYPE);
    using Int = typename Isa::Int;
    using Dot = typename Isa::template Dot<F.bits>;

    template <int V>
    void add() {
        Int a[PARTS], b[PARTS];
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) block_.template unpack<V>(p, a[p], b[p]);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
            const int8_t* q = rows_[r].q + 8 * V;
            const typename Isa::Group x = Isa::group(q), y = Isa::group(q + 4);
#pragma GCC unroll 4
            for (int p = 0; p < PARTS; ++p) {
                if constexpr (TYPE == Type::Q6_K) dots_[p][r].template add<V>(a[p], b[p], x, y, block_.half_scales(p));
                else dots_[p][r].template add<V>(a[p], b[p], x, y);
            }
        }
    }

    Int total(int p, int r, const RowBlock& row) const {
        if constexpr (TYPE == Type::Q6_K) {
            return dots_[p][r].total(block_.half_scales(p), row.sums);
        } else {
            constexpr int OFFSET = F.bits == 8 ? Isa::BYTE_OFFSET : F.offset;
            const Int dot = dots_[p][r].total();
            if constexpr (OFFSET == 0) return dot;
            else return Isa::minus(dot, OFFSET / 8 * row.eightfold_sum);
        }
    }

    const Block& block_;
    const RowBlock* rows_;
    Dot dots_[PARTS][ROWS];
};

constexpr int AHEAD = 16;  // blocks between what is worked on and what is fetched from memory

// What to fetch from memory while a block is worked on.
struct Ahead {
    const uint8_t* from;
    int bytes;
};

// Sums of as many rows as are multiplied at once.
template <class Isa>
struct Sums {
    typename Isa::Float parts[Isa::COLUMNS / Isa::LANES][Isa::ROWS];

    void clear() {
        for (auto& part : parts)
            for (auto& sum : part) sum = Isa::zero();
    }

    void store(int rows, float* target, int64_t stride, int outputs) const {
        for (int p = 0; p < Isa::COLUMNS / Isa::LANES; ++p) {
            const int here = outputs - p * Isa::LANES;
            for (int r = 0; r < rows && here > 0; ++r) {
                float* to = target + r * stride + p * Isa::LANES;
                if (here >= Isa::LANES) {
                    Isa::store(to, parts[p][r]);
                } else {
                    alignas(64) float all[Isa::LANES];
                    Isa::store(all, parts[p][r]);
                    for (int c = 0; c < here; ++c) to[c] = all[c];
                }
            }
        }
    }
};

// Adds the products of ROWS rows with so many blocks, block after block; those of the rows are `step` apart.
template <class Isa, Type TYPE, int ROWS, class Run>
void add_run(const PackedRun<Isa, TYPE>& packed, const Run& run, int64_t blocks, const RowBlock* rows, int64_t step,
             Sums<Isa>& all, Ahead& ahead) {
    constexpr int PARTS = Isa::COLUMNS / Isa::LANES;
    constexpr bool FACTOR = TYPE == Type::Q6_K;
    typename Isa::Float sums[PARTS][ROWS];
    for (int p = 0; p < PARTS; ++p)
        for (int r = 0; r < ROWS; ++r) sums[p][r] = FACTOR ? Isa::zero() : all.parts[p][r];
    for (int64_t i = 0; i < blocks; ++i) {
        Isa::template prefetch<ROWS>(ahead.from, ahead.bytes);
        ahead.from += ahead.bytes;
        const auto& block = run[i];
        BlockProducts<Isa, TYPE, ROWS, std::decay_t<decltype(block)>>(block, rows + i * step).add_to(sums);
    }
    for (int p = 0; p < PARTS; ++p)
        for (int r = 0; r < ROWS; ++r)
            all.parts[p][r] = FACTOR ? Isa::add_product(all.parts[p][r], sums[p][r], packed.factor(p)) : sums[p][r];
}

// add_run for 1 to Isa::ROWS rows.
template <class Isa, Type TYPE, class Run, int... LESS>
void add_rows(std::integer_sequence<int, LESS...>, int64_t rows, const PackedRun<Isa, TYPE>& packed, const Run& run,
              int64_t blocks, const RowBlock* first, int64_t step, Sums<Isa>& sums, Ahead& ahead) {
    using RunProduct = void (*)(const PackedRun<Isa, TYPE>&, const Run&, int64_t, const RowBlock*, int64_t, Sums<Isa>&, Ahead&);
    static constexpr RunProduct INSTANCES[] = {add_run<Isa, TYPE, LESS + 1, Run>...};
    INSTANCES[rows - 1](packed, run, blocks, first, step, sums, ahead);
}

// The rows of a product in as few and as even groups as registers allow.
template <class Isa>
struct RowGroups {
    static constexpr int MOST = (MAX_ROWS + Isa::ROWS - 1) / Isa::ROWS;

    int count;
    int64_t first[MOST + 1];
    Sums<Isa> sums[MOST];

    explicit RowGroups(int64_t rows) : count(int((rows + Isa::ROWS - 1) / Isa::ROWS)) {
        for (int g = 0; g <= count; ++g) first[g] = rows * g / count;
        for (int g = 0; g < count; ++g) sums[g].clear();
    }
    int64_t size(int g) const { return first[g + 1] - first[g]; }
};

// Up to 256 inputs after up to 256 inputs, for all groups of rows. Where that is faster, the first group keeps the
// unpacked weights in the nearest cache for the others. What follows is fetched from memory evenly over the work.
template <class Isa, Type TYPE>
void multiply_tile(const uint8_t* tile, int64_t inputs, const RowBlock* rows, int64_t count, float* target,
                   int64_t stride, int outputs) {
    constexpr int BYTES = block_bytes(format_of(TYPE)) * Isa::COLUMNS;
    constexpr auto SIZES = std::make_integer_sequence<int, Isa::ROWS>();
    RowGroups<Isa> groups(count);
    const int64_t blocks = inputs / BLOCK;
    Ahead ahead = {tile + AHEAD * BYTES, BYTES / groups.count};
    UnpackedRun<Isa, TYPE> kept;
    for (int64_t i = 0; i < blocks; i += SUPER / BLOCK) {
        const PackedRun<Isa, TYPE> packed(tile);
        const int64_t here = std::min<int64_t>(SUPER / BLOCK, blocks - i);
        const auto add = [&](int g, const auto& run) {
            const RowBlock* first = rows + i * count + groups.first[g];
            add_rows<Isa, TYPE>(SIZES, groups.size(g), packed, run, here, first, count, groups.sums[g], ahead);
        };
        if (!Isa::KEEPS || groups.count == 1)
            for (int g = 0; g < groups.count; ++g) add(g, packed);
        else
            for (int g = 0; g < groups.count; ++g) g == 0 ? add(g, KeepingRun<Isa, TYPE>{packed, kept}) : add(g, kept);
        tile = packed.end(here);
    }
    for (int g = 0; g < groups.count; ++g)
        groups.sums[g].store(int(groups.size(g)), target + groups.first[g] * stride, stride, outputs);
}

template <class Isa>
TileProduct tile_product(Type type) {
    switch (type) {
        case Type::Q4_0: return multiply_tile<Isa, Type::Q4_0>;
        case Type::Q4_1: return multiply_tile<Isa, Type::Q4_1>;
        case Type::Q5_0: return multiply_tile<Isa, Type::Q5_0>;
        case Type::Q5_1: return multiply_tile<Isa, Type::Q5_1>;
        case Type::Q8_0: return multiply_tile<Isa, Type::Q8_0>;
        case Type::Q4_K: return multiply_tile<Isa, Type::Q4_K>;
        case Type::Q5_K: return multiply_tile<Isa, Type::Q5_K>;
        case Type::Q6_K: return multiply_tile<Isa, Type::Q6_K>;
    }
    return nullptr;
}

}  // namespace edgespec
