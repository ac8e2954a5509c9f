// The product over one tile, written once for all instruction sets.
//
// A tile is cut into parts as wide as a vector. A group of several rows is multiplied at once, with several parts: each
// vector of weights, once loaded, serves all rows, and 4 inputs of a row, once loaded, serve all parts.
//
// `Isa` supplies vectors of int32 and float, a lane for each column of a part:
//
//   LANES, COLUMNS, ROWS       columns of a vector; columns of a tile (a multiple); rows at once, as registers allow
//   Int, Float, Group          the vectors, and what `group` gives
//   load(p), load_bytes(p)     LANES * 4 bytes; signed bytes, BYTE_OFFSET larger
//   low_nibbles(v), high_nibbles(v), or_bits(a, b)
//   fifth_bits<SHIFT, MASK>(v) ((v >> SHIFT) & MASK) << 4, for every byte
//   group(p)                   4 bytes, in every lane
//   Dot<BITS>                  a sum of products, of weights that have so many bits, without a sign below 8:
//     add<V>(a, b, x, y)       adds those of groups 2V and 2V + 1: weights a with inputs x, b with y
//     total()                  int32
//   Scale, scale(p)            of signed bytes
//   ScaledDot<BITS>            a sum of products for K types:
//     add<V>(a, b, x, y, first, second, sum)  as above; when it is due, adds the products times a scale to sum: `first`
//                              for all, or with 6 bits for groups 0 to 3, `second` for the rest
//   Pair, pair(p, q)           of signed bytes
//   add_pair(sum, pair, two)   sum + p * two[0] + q * two[1], in int32
//   BIASED                     whether 6-bit weights are better multiplied with rows 128 larger, if there are many
//   BiasedDot                  a sum of products of signed 6-bit weights with such rows:
//     add<V>(a, b, x, y, scale, start, sum)   as above; `start` is what a half's sum begins with
//   minus_bytes<N>(v), start(sum, a, b)   bytes N smaller; a start for these groups too
//   no_sum(), minus(v, int), minus_shifted<BITS>(a, b), to_float(v), zero()   the third is a - (b << BITS)
//   halves(p)                  floats from half precision
//   negative(a), times(a, b), by(a, float), add_product(sum, a, b), add_scaled(sum, a, float)
//   store(p, v), prefetch(p, bytes)
#pragma once

#include <algorithm>
#include <utility>

#include "blocks_template.h"

namespace edgespec {

// Calls use(p, r, a, b, x, y) for every part and row: weights and inputs of groups 2V and 2V + 1 of a block.
template <class Isa, int V, int ROWS, class Block, class Use>
inline void for_groups(const Block& block, const RowBlock* rows, int64_t stride, const Use& use) {
    constexpr int PARTS = Isa::COLUMNS / Isa::LANES;
    typename Isa::Int a[PARTS], b[PARTS];
#pragma GCC unroll 4
    for (int p = 0; p < PARTS; ++p) block.template unpack<V>(p, a[p], b[p]);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
        const int8_t* q = rows[r * stride].q + 8 * V;
        const typename Isa::Group x = Isa::group(q), y = Isa::group(q + 4);
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) use(p, r, a[p], b[p], x, y);
    }
}

// The products of ROWS rows with one block of all parts. A row's scale belongs to the block.
template <class Isa, Type TYPE, int ROWS, class Block>
class BlockProducts {
public:
    static constexpr int PARTS = Isa::COLUMNS / Isa::LANES;
    using Float = typename Isa::Float;

    BlockProducts(const Block& block, const RowBlock* rows, int64_t stride) : block_(block), rows_(rows), stride_(stride) {
        add<0>();
        add<1>();
        add<2>();
        add<3>();
    }

    void add_to(Float (&sums)[PARTS][ROWS]) const {
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) {
            const Float scale = block_.template scale<0>(p);
            Float minimum;
            if constexpr (F.minimum) minimum = block_.template scale<1>(p);
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
    using Int = typename Isa::Int;
    using Group = typename Isa::Group;

    template <int V>
    void add() {
        for_groups<Isa, V, ROWS>(block_, rows_, stride_, [&](int p, int r, const Int& a, const Int& b, Group x, Group y) {
            dots_[p][r].template add<V>(a, b, x, y);
        });
    }

    Int total(int p, int r, const RowBlock& row) const {
        constexpr int OFFSET = F.bits == 8 ? Isa::BYTE_OFFSET : F.offset;
        const Int dot = dots_[p][r].total();
        if constexpr (OFFSET == 0) return dot;
        else return Isa::minus(dot, OFFSET / 8 * row.eightfold_sum);
    }

    const Block& block_;
    const RowBlock* rows_;
    int64_t stride_;
    typename Isa::template Dot<F.bits> dots_[PARTS][ROWS];
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

template <class Isa, int BITS, bool BIASED>
struct DotOf {
    using Dot = typename Isa::template ScaledDot<BITS>;
};
template <class Isa, int BITS>
struct DotOf<Isa, BITS, true> {
    using Dot = typename Isa::BiasedDot;
};

// The products of ROWS rows with a super-block of all parts, as integers. A row's scale belongs to the super-block.
template <class Isa, Type TYPE, bool BIASED, int ROWS>
class SuperProducts {
public:
    static constexpr int PARTS = Isa::COLUMNS / Isa::LANES;

    SuperProducts(const RowBlock* rows, int64_t stride) : rows_(rows), stride_(stride) {
        for (int p = 0; p < PARTS; ++p)
            for (int r = 0; r < ROWS; ++r) sums_[p][r] = Isa::no_sum();
    }

    template <class Block>
    void add_block(int i, const Block& block) {
        Scale first[PARTS], second[PARTS];
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) {
            first[p] = block.template scale<0>(p);
            second[p] = block.template scale<scale_count(TYPE) - 1>(p);
        }
        Dot dots[PARTS][ROWS];
        const auto add = [&](auto v) {
            for_groups<Isa, v, ROWS>(block, rows_ + i, stride_, [&](int p, int r, const Int& a, const Int& b, Group x, Group y) {
                if constexpr (BIASED)
                    dots[p][r].template add<v>(a, b, x, y, v < 2 ? first[p] : second[p], block.starts[v / 2][p], sums_[p][r]);
                else dots[p][r].template add<v>(a, b, x, y, first[p], second[p], sums_[p][r]);
            });
        };
        add(std::integral_constant<int, 0>());
        add(std::integral_constant<int, 1>());
        add(std::integral_constant<int, 2>());
        add(std::integral_constant<int, 3>());
    }

    template <class Run>
    void add_to(Sums<Isa>& sums, const Run& run) const {
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; ++p) {
            Int pairs[ROWS];
            for (int r = 0; r < ROWS; ++r) pairs[r] = Isa::no_sum();
#pragma GCC unroll 8
            for (int i = 0; i < PAIRS; ++i) {
                const typename Isa::Pair pair = run.pair(i, p);
#pragma GCC unroll 8
                for (int r = 0; r < ROWS; ++r) pairs[r] = Isa::add_pair(pairs[r], pair, pair_of_sums(i, r));
            }
            const auto factor = run.factor(p);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; ++r) {
                const float scale = rows_[r * stride_].scale;
                Int sum = sums_[p][r];
                if constexpr (PAIRS == 8) sum = Isa::template minus_shifted<5>(sum, pairs[r]);
                auto product = Isa::times(Isa::to_float(sum), factor);
                if constexpr (F.minimum) product = Isa::add_product(product, Isa::to_float(pairs[r]), run.pair_factor(p));
                sums.parts[p][r] = Isa::add_scaled(sums.parts[p][r], product, scale);
            }
        }
    }

private:
    static constexpr Format F = format_of(TYPE);
    using Int = typename Isa::Int;
    using Group = typename Isa::Group;
    using Scale = typename Isa::Scale;
    using Dot = typename DotOf<Isa, F.bits, BIASED>::Dot;
    static constexpr int PAIRS = BIASED ? 0 : pair_count(TYPE);

    const int16_t* pair_of_sums(int i, int r) const {
        if constexpr (TYPE == Type::Q6_K) return rows_[r * stride_ + i].sums;
        else return rows_[r * stride_ + 2 * i].sums_of_two;
    }

    const RowBlock* rows_;
    int64_t stride_;
    Int sums_[PARTS][ROWS];
};

constexpr int AHEAD = 16;  // blocks between what is worked on and what is fetched from memory

// What to fetch from memory while a block is worked on.
struct Ahead {
    const uint8_t* from;
    int bytes;
};

// Adds the products of ROWS rows with so many blocks, block after block.
template <class Isa, Type TYPE, bool BIASED, int ROWS, class Run>
void add_run(const Run& run, int64_t blocks, const RowBlock* rows, int64_t stride, Sums<Isa>& all, Ahead& ahead) {
    const auto fetch = [&] {
        Isa::prefetch(ahead.from, ahead.bytes);
        ahead.from += ahead.bytes;
    };
    if constexpr (format_of(TYPE).super) {
        SuperProducts<Isa, TYPE, BIASED, ROWS> products(rows, stride);
        for (int i = 0; i < SUPER / BLOCK; ++i) {
            fetch();
            products.add_block(i, run[i]);
        }
        products.add_to(all, run);
    } else {
        constexpr int PARTS = Isa::COLUMNS / Isa::LANES;
        typename Isa::Float sums[PARTS][ROWS];
        for (int p = 0; p < PARTS; ++p)
            for (int r = 0; r < ROWS; ++r) sums[p][r] = all.parts[p][r];
        for (int64_t i = 0; i < blocks; ++i) {
            fetch();
            const auto& block = run[i];
            BlockProducts<Isa, TYPE, ROWS, std::decay_t<decltype(block)>>(block, rows + i, stride).add_to(sums);
        }
        for (int p = 0; p < PARTS; ++p)
            for (int r = 0; r < ROWS; ++r) all.parts[p][r] = sums[p][r];
    }
}

// add_run for 1 to Isa::ROWS rows.
template <class Isa, Type TYPE, bool BIASED, class Run, int... LESS>
void add_rows(std::integer_sequence<int, LESS...>, int64_t rows, const Run& run, int64_t blocks, const RowBlock* first,
              int64_t stride, Sums<Isa>& sums, Ahead& ahead) {
    using RunProduct = void (*)(const Run&, int64_t, const RowBlock*, int64_t, Sums<Isa>&, Ahead&);
    static constexpr RunProduct INSTANCES[] = {add_run<Isa, TYPE, BIASED, LESS + 1, Run>...};
    INSTANCES[rows - 1](run, blocks, first, stride, sums, ahead);
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

// Up to 256 inputs after up to 256 inputs, for all groups of rows. For several groups the weights are unpacked first.
// What follows is fetched from memory evenly over the work.
template <class Isa, Type TYPE, bool BIASED>
void multiply_tile(const uint8_t* tile, int64_t inputs, const RowBlock* rows, int64_t count, float* target,
                   int64_t stride, int outputs) {
    constexpr int BYTES = block_bytes(format_of(TYPE)) * Isa::COLUMNS;
    constexpr auto SIZES = std::make_integer_sequence<int, Isa::ROWS>();
    RowGroups<Isa> groups(count);
    const int64_t blocks = inputs / BLOCK;
    Ahead ahead = {tile + AHEAD * BYTES, BYTES / groups.count};
    UnpackedRun<Isa, TYPE, BIASED> unpacked;
    for (int64_t i = 0; i < blocks; i += SUPER / BLOCK) {
        const PackedRun<Isa, TYPE> packed(tile);
        const int64_t here = std::min<int64_t>(SUPER / BLOCK, blocks - i);
        const auto add = [&](int g, const auto& run) {
            const RowBlock* first = rows + groups.first[g] * blocks + i;
            add_rows<Isa, TYPE, BIASED>(SIZES, groups.size(g), run, here, first, blocks, groups.sums[g], ahead);
        };
        if (!BIASED && groups.count == 1) {
            if constexpr (!BIASED) add(0, packed);
        } else {
            unpacked.fill(packed, here);
            for (int g = 0; g < groups.count; ++g) add(g, unpacked);
        }
        tile = packed.end(here);
    }
    for (int g = 0; g < groups.count; ++g)
        groups.sums[g].store(int(groups.size(g)), target + groups.first[g] * stride, stride, outputs);
}

template <class Isa, Type TYPE>
TypeProduct product_of(int64_t rows) {
    const int span = format_of(TYPE).super ? SUPER : BLOCK;
    if constexpr (TYPE == Type::Q6_K && Isa::BIASED)
        if (rows > Isa::ROWS) return {multiply_tile<Isa, TYPE, true>, {span, true}};
    return {multiply_tile<Isa, TYPE, false>, {span, false}};
}

template <class Isa>
TypeProduct tile_product(Type type, int64_t rows) {
    switch (type) {
        case Type::Q4_0: return product_of<Isa, Type::Q4_0>(rows);
        case Type::Q4_1: return product_of<Isa, Type::Q4_1>(rows);
        case Type::Q5_0: return product_of<Isa, Type::Q5_0>(rows);
        case Type::Q5_1: return product_of<Isa, Type::Q5_1>(rows);
        case Type::Q8_0: return product_of<Isa, Type::Q8_0>(rows);
        case Type::Q4_K: return product_of<Isa, Type::Q4_K>(rows);
        case Type::Q5_K: return product_of<Isa, Type::Q5_K>(rows);
        case Type::Q6_K: return product_of<Isa, Type::Q6_K>(rows);
    }
    return {};
}

}  // namespace edgespec
