// The product over one tile, written once for all instruction sets.
//
// A tile is cut into parts as wide as a vector. Several rows are multiplied at once, and several parts: each vector of
// weights, once unpacked, serves all rows, and each group of 4 inputs of a row, once loaded, serves all parts.
//
// `Isa` supplies vectors of int32 and float, a lane for each column of a part:
//
//   LANES, COLUMNS, ROWS       columns of a vector; columns of a tile (a multiple); rows at once, as registers allow
//   Int, Float, Group          the vectors, and what `group` gives
//   load(p), load_bytes(p)     LANES * 4 bytes; signed bytes, BYTE_OFFSET larger
//   low_nibbles(v), high_nibbles(v), or_bits(a, b)
//   fifth_bits<SHIFT, MASK>(v) ((v >> SHIFT) & MASK) << 4, for every byte
//   group(p)                   4 bytes, in every lane
//   HalfScales(p, q)           Q6_K's scales of both halves of a block, from signed bytes
//   Dot<BITS>                  a sum of products, of weights that have so many bits, without a sign up to 6:
//     add<V>(a, b, x, y)       adds those of groups 2V and 2V + 1: weights a with inputs x, b with y; in Dot<6> with
//                              HalfScales as a fifth argument
//     total()                  int32; in Dot<6> total(scales, sums): weights 32 smaller, `sums` the inputs' by halves
//   minus(v, int), to_float(v), zero()
//   halves(p), bytes(p)        floats from half precision or bytes
//   negative(a), times(a, b), by(a, float), add_product(sum, a, b), add_scaled(sum, a, float)
//   store(p, v), prefetch(p, bytes)
#pragma once

#include <utility>

#include "product.h"

namespace edgespec {

// One block of one part of a tile. Integers are unpacked two groups at a time.
template <class Isa, Type TYPE>
class BlockPart {
public:
    using Int = typename Isa::Int;
    using Float = typename Isa::Float;
    using Dot = typename Isa::template Dot<format_of(TYPE).bits>;

    BlockPart(const uint8_t* block, const uint8_t* factors, int part)
        : nibbles_(block + part * Isa::LANES * 4), factors_(factors), column_(part * Isa::LANES) {
        scales_ = block + (nibble_bytes(F) + high_bytes(F)) * Isa::COLUMNS;
    }

    // The weights of groups 2V and 2V + 1.
    template <int V>
    void unpack(Int& a, Int& b) const {
        if constexpr (F.bits == 8) {
            a = Isa::load_bytes(nibbles_ + 2 * V * VECTOR);
            b = Isa::load_bytes(nibbles_ + (2 * V + 1) * VECTOR);
        } else {
            const Int both = Isa::load(nibbles_ + V * VECTOR);
            a = Isa::low_nibbles(both);
            b = Isa::high_nibbles(both);
        }
        if constexpr (F.bits == 5) add_bits<2 * V, 1>(0, a, b);
        if constexpr (F.bits == 6) add_bits<4 * (V % 2), 3>(V / 2, a, b);
    }

    typename Isa::HalfScales half_scales() const {
        return typename Isa::HalfScales(scales_ + column_, scales_ + Isa::COLUMNS + column_);
    }

    // What integer sums are multiplied with.
    Float scale() const {
        if constexpr (TYPE == Type::Q6_K) return Isa::halves(factors_ + 2 * column_);
        else if constexpr (F.super) return Isa::times(Isa::halves(factors_ + 2 * column_), Isa::bytes(scales_ + column_));
        else return Isa::halves(scales_ + 2 * column_);
    }

    // What is added for each 1 among the inputs.
    Float minimum() const {
        constexpr int SECOND = Isa::COLUMNS;
        if constexpr (F.super) {
            const Float factor = Isa::halves(factors_ + 2 * (SECOND + column_));
            return Isa::negative(Isa::times(factor, Isa::bytes(scales_ + SECOND + column_)));
        } else {
            return Isa::halves(scales_ + 2 * (SECOND + column_));
        }
    }

private:
    static constexpr Format F = format_of(TYPE);
    static constexpr int VECTOR = 4 * Isa::COLUMNS;

    template <int SHIFT, int MASK>
    void add_bits(int vector, Int& a, Int& b) const {
        const Int high = Isa::load(nibbles_ + nibble_bytes(F) * Isa::COLUMNS + vector * VECTOR);
        a = Isa::or_bits(a, Isa::template fifth_bits<SHIFT, MASK>(high));
        b = Isa::or_bits(b, Isa::template fifth_bits<SHIFT + (MASK == 3 ? 2 : 1), MASK>(high));
    }

    const uint8_t *nibbles_, *factors_, *scales_;
    int column_;
};

// The products of ROWS rows with one block of all parts.
template <class Isa, Type TYPE, int ROWS>
class BlockProducts {
public:
    static constexpr int PARTS = Isa::COLUMNS / Isa::LANES;
    using Float = typename Isa::Float;

    BlockProducts(const uint8_t* block, const uint8_t* factors, const RowBlock* rows, int64_t stride)
        : block_(block), factors_(factors), rows_(rows), stride_(stride) {
        add<0>();
        add<1>();
        add<2>();
        add<3>();
    }

    void add_to(Float (&sums)[PARTS][ROWS]) const {
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) {
            const Part part(block_, factors_, p);
            const Float scale = part.scale();
            Float minimum;
            if constexpr (F.minimum) minimum = part.minimum();
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r) {
                const RowBlock& row = rows_[r * stride_];
                const Float factor = Isa::by(scale, row.scale);
                sums[p][r] = Isa::add_product(sums[p][r], Isa::to_float(total(p, r, row)), factor);
                if constexpr (F.minimum) sums[p][r] = Isa::add_scaled(sums[p][r], minimum, row.scaled_sum);
            }
        }
    }

private:
    static constexpr Format F = format_of(TYPE);
    using Part = BlockPart<Isa, TYPE>;
    using Int = typename Isa::Int;

    template <int V>
    void add() {
        Int a[PARTS], b[PARTS];
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) Part(block_, factors_, p).template unpack<V>(a[p], b[p]);
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; ++r) {
            const int8_t* q = rows_[r * stride_].q + 8 * V;
            const typename Isa::Group x = Isa::group(q), y = Isa::group(q + 4);
#pragma GCC unroll 4
            for (int p = 0; p < PARTS; ++p) {
                if constexpr (TYPE == Type::Q6_K)
                    dots_[p][r].template add<V>(a[p], b[p], x, y, Part(block_, factors_, p).half_scales());
                else
                    dots_[p][r].template add<V>(a[p], b[p], x, y);
            }
        }
    }

    Int total(int p, int r, const RowBlock& row) const {
        if constexpr (TYPE == Type::Q6_K) {
            return dots_[p][r].total(Part(block_, factors_, p).half_scales(), row.sums);
        } else {
            constexpr int OFFSET = F.bits == 8 ? Isa::BYTE_OFFSET : F.offset;
            const Int dot = dots_[p][r].total();
            if constexpr (OFFSET == 0) return dot;
            else return Isa::minus(dot, OFFSET * row.sum);
        }
    }

    const uint8_t *block_, *factors_;
    const RowBlock* rows_;
    int64_t stride_;
    typename Part::Dot dots_[PARTS][ROWS];
};

template <class Isa, int ROWS>
void store_sums(const typename Isa::Float (&sums)[Isa::COLUMNS / Isa::LANES][ROWS], float* target, int64_t stride, int outputs) {
    for (int p = 0; p < Isa::COLUMNS / Isa::LANES; ++p) {
        const int here = outputs - p * Isa::LANES;
        for (int r = 0; r < ROWS && here > 0; ++r) {
            float* to = target + r * stride + p * Isa::LANES;
            if (here >= Isa::LANES) {
                Isa::store(to, sums[p][r]);
            } else {
                alignas(64) float all[Isa::LANES];
                Isa::store(all, sums[p][r]);
                for (int c = 0; c < here; ++c) to[c] = all[c];
            }
        }
    }
}

// What to fetch from memory while a block is worked on.
struct Ahead {
    const uint8_t* from;
    int bytes;
};

template <class Isa, Type TYPE, int ROWS>
void multiply_rows(const uint8_t* tile, int64_t inputs, const RowBlock* rows, float* target, int64_t stride, int outputs,
                   Ahead ahead) {
    constexpr Format F = format_of(TYPE);
    constexpr int PARTS = Isa::COLUMNS / Isa::LANES, BYTES = block_bytes(F) * Isa::COLUMNS;
    const int64_t blocks = inputs / BLOCK;
    typename Isa::Float sums[PARTS][ROWS];
    for (auto& part : sums)
        for (auto& sum : part) sum = Isa::zero();
    const uint8_t* factors = tile;
    for (int64_t i = 0; i < blocks; ++i) {
        if constexpr (F.super) {
            if (i % (SUPER / BLOCK) == 0) {
                factors = tile;
                tile += factor_bytes(F) * Isa::COLUMNS;
            }
        }
        Isa::prefetch(ahead.from, ahead.bytes);
        ahead.from += ahead.bytes;
        BlockProducts<Isa, TYPE, ROWS>(tile, factors, rows + i, blocks).add_to(sums);
        tile += BYTES;
    }
    store_sums<Isa, ROWS>(sums, target, stride, outputs);
}

using RowsProduct = void (*)(const uint8_t*, int64_t, const RowBlock*, float*, int64_t, int, Ahead);

// The instances for 1 to Isa::ROWS rows.
template <class Isa, Type TYPE, int... LESS>
RowsProduct rows_product(int64_t rows, std::integer_sequence<int, LESS...>) {
    static constexpr RowsProduct INSTANCES[] = {multiply_rows<Isa, TYPE, LESS + 1>...};
    return INSTANCES[rows - 1];
}

// The rows in as few and as even steps as the instances allow. A tile comes from memory while the one before it is
// worked on, evenly spread over its steps: the first of them would wait for memory, and the others leave it idle.
template <class Isa, Type TYPE>
void multiply_tile(const uint8_t* tile, int64_t inputs, const RowBlock* rows, int64_t count, float* target,
                   int64_t stride, int outputs) {
    constexpr int BYTES = block_bytes(format_of(TYPE)) * Isa::COLUMNS;
    int64_t steps = (count + Isa::ROWS - 1) / Isa::ROWS;
    const int64_t size = int64_t(tile_bytes(format_of(TYPE), inputs, Isa::COLUMNS)), share = size / steps;
    Ahead ahead = {tile + size, int(BYTES / steps)};
    if (steps == 1) ahead.from = tile + 4 * BYTES;
    for (int64_t done = 0; steps > 0; --steps, ahead.from += share) {
        const int64_t now = (count - done + steps - 1) / steps;
        const RowsProduct multiply = rows_product<Isa, TYPE>(now, std::make_integer_sequence<int, Isa::ROWS>());
        multiply(tile, inputs, rows + done * (inputs / BLOCK), target + done * stride, stride, outputs, ahead);
        done += now;
    }
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
