// Blocks of a tile as the products read them: straight from the tile, or unpacked.
//
// product_template.h says what `Isa` supplies.
#pragma once

#include "product.h"

namespace edgespec {

// What belongs to a block of a column beside its integers: floats, or the small integers of K types.
template <class Isa, bool K>
struct ScaleKind {
    using Scale = typename Isa::Float;
};
template <class Isa>
struct ScaleKind<Isa, true> {
    using Scale = typename Isa::Scale;
};
template <class Isa, Type TYPE>
using ScaleOf = typename ScaleKind<Isa, format_of(TYPE).super>::Scale;

// Scales of a block: in K types one for all of it, or one for each half; else what integers are multiplied with, and
// the minimum, if there is one.
constexpr int scale_count(Type type) { return type == Type::Q6_K || (!format_of(type).super && format_of(type).minimum) ? 2 : 1; }

// What K types multiply sums of inputs with, in pairs: minima of two blocks, or scales of two halves.
constexpr int pair_count(Type type) { return !format_of(type).super ? 0 : type == Type::Q6_K ? 8 : 4; }

// A block as it lies in a tile. Integers are unpacked two groups at a time, for part p of the tile.
template <class Isa, Type TYPE>
class PackedBlock {
public:
    using Int = typename Isa::Int;

    explicit PackedBlock(const uint8_t* block)
        : nibbles_(block), scales_(block + (nibble_bytes(F) + high_bytes(F)) * Isa::COLUMNS) {}

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

    template <int N>
    ScaleOf<Isa, TYPE> scale(int p) const {
        if constexpr (F.super) return Isa::scale(small_scales(p, N));
        else return Isa::halves(scales_ + 2 * (N * Isa::COLUMNS + p * Isa::LANES));
    }

    // Bytes of K types: scales are number 0, minima or second scales number 1.
    const uint8_t* small_scales(int p, int n) const { return scales_ + n * Isa::COLUMNS + p * Isa::LANES; }

private:
    static constexpr Format F = format_of(TYPE);
    static constexpr int HIGH = nibble_bytes(F) / 4;  // vectors before those with the bits beyond the fourth

    const uint8_t* at(int p, int vector) const { return nibbles_ + 4 * (vector * Isa::COLUMNS + p * Isa::LANES); }

    template <int SHIFT, int MASK>
    static void add_bits(const uint8_t* vector, Int& a, Int& b) {
        const Int high = Isa::load(vector);
        a = Isa::or_bits(a, Isa::template fifth_bits<SHIFT, MASK>(high));
        b = Isa::or_bits(b, Isa::template fifth_bits<SHIFT + (MASK == 3 ? 2 : 1), MASK>(high));
    }

    const uint8_t *nibbles_, *scales_;
};

// The blocks of up to 256 inputs as they lie in a tile: a K type's super-block.
template <class Isa, Type TYPE>
class PackedRun {
public:
    explicit PackedRun(const uint8_t* tile) : factors_(tile), blocks_(tile + factor_bytes(F) * Isa::COLUMNS) {}

    PackedBlock<Isa, TYPE> operator[](int64_t i) const { return PackedBlock<Isa, TYPE>(blocks_ + i * BYTES); }
    const uint8_t* end(int64_t blocks) const { return blocks_ + blocks * BYTES; }

    // Of a super-block: what sums are multiplied with, and what sums with pairs are.
    typename Isa::Float factor(int p) const { return Isa::halves(factors_ + 2 * p * Isa::LANES); }
    typename Isa::Float pair_factor(int p) const {
        return Isa::negative(Isa::halves(factors_ + 2 * (Isa::COLUMNS + p * Isa::LANES)));
    }
    typename Isa::Pair pair(int i, int p) const {
        if constexpr (TYPE == Type::Q6_K) return Isa::pair((*this)[i].small_scales(p, 0), (*this)[i].small_scales(p, 1));
        else return Isa::pair((*this)[2 * i].small_scales(p, 1), (*this)[2 * i + 1].small_scales(p, 1));
    }

private:
    static constexpr Format F = format_of(TYPE);
    static constexpr int BYTES = block_bytes(F) * Isa::COLUMNS;

    const uint8_t *factors_, *blocks_;
};

// What a PackedBlock gives, unpacked into the nearest cache for several groups of rows. BIASED: for rows whose integers
// are 128 larger; the weights are signed then, and sums start from what that adds to them.
template <class Isa, Type TYPE, bool BIASED>
struct UnpackedBlock {
    using Int = typename Isa::Int;
    static constexpr int PARTS = Isa::COLUMNS / Isa::LANES;

    Int weights[GROUPS][PARTS];
    ScaleOf<Isa, TYPE> scales[scale_count(TYPE)][PARTS];
    Int starts[BIASED ? 2 : 0][PARTS];  // by halves

    template <int V>
    void unpack(int p, Int& a, Int& b) const {
        a = weights[2 * V][p];
        b = weights[2 * V + 1][p];
    }
    template <int N>
    const ScaleOf<Isa, TYPE>& scale(int p) const { return scales[N][p]; }

    void fill(const PackedBlock<Isa, TYPE>& packed) {
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) {
            fill_groups<0>(packed, p);
            fill_groups<1>(packed, p);
            fill_groups<2>(packed, p);
            fill_groups<3>(packed, p);
            scales[0][p] = packed.template scale<0>(p);
            if constexpr (scale_count(TYPE) == 2) scales[1][p] = packed.template scale<1>(p);
        }
    }

private:
    template <int V>
    void fill_groups(const PackedBlock<Isa, TYPE>& packed, int p) {
        Int a, b;
        packed.template unpack<V>(p, a, b);
        if constexpr (BIASED) {
            a = Isa::template minus_bytes<format_of(TYPE).offset>(a);
            b = Isa::template minus_bytes<format_of(TYPE).offset>(b);
            starts[V / 2][p] = Isa::start(V % 2 == 0 ? Isa::no_sum() : starts[V / 2][p], a, b);
        }
        weights[2 * V][p] = a;
        weights[2 * V + 1][p] = b;
    }
};

template <class Isa, Type TYPE, bool BIASED>
struct UnpackedRun {
    static constexpr int PARTS = Isa::COLUMNS / Isa::LANES;

    UnpackedBlock<Isa, TYPE, BIASED> blocks[SUPER / BLOCK];
    typename Isa::Pair pairs[pair_count(TYPE)][PARTS];
    typename Isa::Float factors[PARTS], pair_factors[PARTS];

    const auto& operator[](int64_t i) const { return blocks[i]; }
    const auto& factor(int p) const { return factors[p]; }
    const auto& pair_factor(int p) const { return pair_factors[p]; }
    const auto& pair(int i, int p) const { return pairs[i][p]; }

    void fill(const PackedRun<Isa, TYPE>& packed, int64_t count) {
        for (int64_t i = 0; i < count; ++i) blocks[i].fill(packed[i]);
        if constexpr (format_of(TYPE).super) {
            for (int p = 0; p < PARTS; ++p) {
                factors[p] = packed.factor(p);
                if constexpr (format_of(TYPE).minimum) pair_factors[p] = packed.pair_factor(p);
                if constexpr (!BIASED)
                    for (int i = 0; i < pair_count(TYPE); ++i) pairs[i][p] = packed.pair(i, p);
            }
        }
    }
};

}  // namespace edgespec
