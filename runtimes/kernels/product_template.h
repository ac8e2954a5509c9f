// The product over one tile, written once for all instruction sets.
//
// `Isa` supplies vectors of int32 and float, a lane for each column of a part of the tile:
//
//   LANES, COLUMNS             columns of a vector; columns of a tile (a multiple)
//   Int, Float                 the vectors
//   load(p), load_bytes(p)     LANES * 4 bytes; signed bytes, BYTE_OFFSET larger
//   low_nibbles(v), high_nibbles(v), or_bits(a, b)
//   fifth_bits<SHIFT, MASK>(v) ((v >> SHIFT) & MASK) << 4, for every byte
//   dot<BITS, FROM, TO>(w, q)  in every lane, the sum over groups FROM to TO - 1 and their 4 inputs; the weights have so
//                              many bits, without a sign up to 6
//   minus(v, int), to_float(v), zero()
//   halves(p), bytes(p), signed_bytes(p)             floats from half precision or bytes
//   negative(a), times(a, b), by(a, float), add_product(sum, a, b), add_scaled(sum, a, float)
//   store(p, v), prefetch(p, bytes)
#pragma once

#include "product.h"

namespace edgespec {

// One block of one part of a tile, unpacked: its integers, and scales and minima as floats.
template <class Isa, Type TYPE>
struct Unpacked {
    static constexpr Format F = format_of(TYPE);
    typename Isa::Int w[GROUPS];
    typename Isa::Float scale[2], minimum;

    Unpacked(const uint8_t* block, const uint8_t* factors, int part) {
        constexpr int COLUMNS = Isa::COLUMNS, VECTOR = 4 * COLUMNS;
        const uint8_t* nibbles = block + part * Isa::LANES * 4;
        const uint8_t* high = nibbles + nibble_bytes(F) * COLUMNS;
        const uint8_t* scales = block + (nibble_bytes(F) + high_bytes(F)) * COLUMNS;
        if constexpr (F.bits == 8) {
            for (int g = 0; g < GROUPS; ++g) w[g] = Isa::load_bytes(nibbles + g * VECTOR);
        } else {
            for (int v = 0; v < GROUPS / 2; ++v) {
                const typename Isa::Int both = Isa::load(nibbles + v * VECTOR);
                w[v] = Isa::low_nibbles(both);
                w[v + 4] = Isa::high_nibbles(both);
            }
        }
        if constexpr (F.bits == 5) add_bits(Isa::load(high), w);
        if constexpr (F.bits == 6) {
            add_pairs(Isa::load(high), w);
            add_pairs(Isa::load(high + VECTOR), w + 4);
        }
        read_scales(scales, factors, part * Isa::LANES);
    }

private:
    static void add_bits(typename Isa::Int high, typename Isa::Int* w) {
        w[0] = Isa::or_bits(w[0], Isa::template fifth_bits<0, 1>(high));
        w[1] = Isa::or_bits(w[1], Isa::template fifth_bits<1, 1>(high));
        w[2] = Isa::or_bits(w[2], Isa::template fifth_bits<2, 1>(high));
        w[3] = Isa::or_bits(w[3], Isa::template fifth_bits<3, 1>(high));
        w[4] = Isa::or_bits(w[4], Isa::template fifth_bits<4, 1>(high));
        w[5] = Isa::or_bits(w[5], Isa::template fifth_bits<5, 1>(high));
        w[6] = Isa::or_bits(w[6], Isa::template fifth_bits<6, 1>(high));
        w[7] = Isa::or_bits(w[7], Isa::template fifth_bits<7, 1>(high));
    }
    static void add_pairs(typename Isa::Int high, typename Isa::Int* w) {
        w[0] = Isa::or_bits(w[0], Isa::template fifth_bits<0, 3>(high));
        w[1] = Isa::or_bits(w[1], Isa::template fifth_bits<2, 3>(high));
        w[2] = Isa::or_bits(w[2], Isa::template fifth_bits<4, 3>(high));
        w[3] = Isa::or_bits(w[3], Isa::template fifth_bits<6, 3>(high));
    }
    void read_scales(const uint8_t* scales, const uint8_t* factors, int column) {
        constexpr int COLUMNS = Isa::COLUMNS;
        if constexpr (TYPE == Type::Q6_K) {
            const typename Isa::Float factor = Isa::halves(factors + 2 * column);
            scale[0] = Isa::times(factor, Isa::signed_bytes(scales + column));
            scale[1] = Isa::times(factor, Isa::signed_bytes(scales + COLUMNS + column));
        } else if constexpr (F.super) {
            scale[0] = Isa::times(Isa::halves(factors + 2 * column), Isa::bytes(scales + column));
            minimum = Isa::negative(
                Isa::times(Isa::halves(factors + 2 * (COLUMNS + column)), Isa::bytes(scales + COLUMNS + column)));
        } else {
            scale[0] = Isa::halves(scales + 2 * column);
            if constexpr (F.minimum) minimum = Isa::halves(scales + 2 * (COLUMNS + column));
        }
    }
};

// sum + this block's share of the products with one row.
template <class Isa, Type TYPE>
inline typename Isa::Float add_block(typename Isa::Float sum, const Unpacked<Isa, TYPE>& block, const RowBlock& row) {
    constexpr Format F = format_of(TYPE);
    if constexpr (TYPE == Type::Q6_K) {
        const auto first = Isa::minus(Isa::template dot<6, 0, 4>(block.w, row.q), F.offset * row.sum[0]);
        const auto second = Isa::minus(Isa::template dot<6, 4, 8>(block.w, row.q), F.offset * row.sum[1]);
        const auto weighted = Isa::times(Isa::to_float(first), block.scale[0]);
        return Isa::add_scaled(sum, Isa::add_product(weighted, Isa::to_float(second), block.scale[1]), row.scale);
    } else {
        auto dot = Isa::template dot<F.bits, 0, 8>(block.w, row.q);
        constexpr int OFFSET = F.bits == 8 ? Isa::BYTE_OFFSET : F.offset;
        if constexpr (OFFSET != 0) dot = Isa::minus(dot, OFFSET * (row.sum[0] + row.sum[1]));
        sum = Isa::add_product(sum, Isa::to_float(dot), Isa::by(block.scale[0], row.scale));
        if constexpr (F.minimum) sum = Isa::add_scaled(sum, block.minimum, row.scaled_sum);
        return sum;
    }
}

// ROWS rows at once: the weights are unpacked once for all of them.
template <class Isa, Type TYPE, int ROWS>
void multiply_rows(const uint8_t* tile, int64_t inputs, const RowBlock* rows, float* target, int64_t stride, int outputs) {
    constexpr Format F = format_of(TYPE);
    constexpr int PARTS = Isa::COLUMNS / Isa::LANES;
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
        for (int part = 0; part < PARTS; ++part) {
            const Unpacked<Isa, TYPE> block(tile, factors, part);
            for (int r = 0; r < ROWS; ++r)
                sums[part][r] = add_block<Isa, TYPE>(sums[part][r], block, rows[r * blocks + i]);
        }
        tile += block_bytes(F) * Isa::COLUMNS;
        Isa::prefetch(tile + 6 * block_bytes(F) * Isa::COLUMNS, block_bytes(F) * Isa::COLUMNS);
    }
    for (int part = 0; part < PARTS; ++part) {
        const int here = outputs - part * Isa::LANES;
        if (here <= 0) break;
        for (int r = 0; r < ROWS; ++r) {
            float* to = target + r * stride + part * Isa::LANES;
            if (here >= Isa::LANES) {
                Isa::store(to, sums[part][r]);
            } else {
                alignas(64) float all[Isa::LANES];
                Isa::store(all, sums[part][r]);
                for (int c = 0; c < here; ++c) to[c] = all[c];
            }
        }
    }
}

// The rows in as few and as even steps as the instances allow.
template <class Isa, Type TYPE>
void multiply_tile(const uint8_t* tile, int64_t inputs, const RowBlock* rows, int64_t count, float* target,
                   int64_t stride, int outputs) {
    using Step = void (*)(const uint8_t*, int64_t, const RowBlock*, float*, int64_t, int);
    constexpr Step STEPS[] = {
        multiply_rows<Isa, TYPE, 1>, multiply_rows<Isa, TYPE, 2>, multiply_rows<Isa, TYPE, 3>,
        multiply_rows<Isa, TYPE, 4>, multiply_rows<Isa, TYPE, 5>, multiply_rows<Isa, TYPE, 6>,
        multiply_rows<Isa, TYPE, 7>, multiply_rows<Isa, TYPE, 8>,
    };
    constexpr int64_t MOST = sizeof STEPS / sizeof *STEPS;
    for (int64_t steps = (count + MOST - 1) / MOST, done = 0; steps > 0; --steps) {
        const int64_t now = (count - done + steps - 1) / steps;
        STEPS[now - 1](tile, inputs, rows + done * (inputs / BLOCK), target + done * stride, stride, outputs);
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
