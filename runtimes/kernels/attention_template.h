// Attention, written once for all instruction sets: with a running maximum over chunks of the cache, as in "Online
// normalizer calculation for softmax" (Milakov and Gimelshein, 2018) and FlashAttention (Dao et al., 2022).
//
// Beyond what products need, `Isa` supplies:
//
//   SUMS                 vectors to add up in, as registers allow: a power of two, at least CHUNK / LANES
//   floats(p), set(float), larger(a, b), add(a, b)
//   largest(v), sum(v)   over the lanes
//   transpose(v)         LANES vectors, as a square matrix
//   by_power(a, n)       a * 2^n for whole n, given as n + 1.5 * 2^23
//   where_above(x, least, a)   a in the lanes where x > least, 0 elsewhere
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "attention.h"

namespace edgespec {

constexpr int CHUNK = 32;  // cells
constexpr float NOWHERE = -std::numeric_limits<float>::infinity();

// e^x for x <= 0, to about a unit in the last place; 0 below -87.
template <class Isa>
typename Isa::Float exponential(typename Isa::Float x) {
    using Float = typename Isa::Float;
    const Float shifted = Isa::add_scaled(Isa::set(12582912.0f), x, 1.44269504f);  // rounds x / ln 2 to a whole number
    const Float whole = Isa::add(shifted, Isa::set(-12582912.0f));
    const Float rest = Isa::add_scaled(Isa::add_scaled(x, whole, -0.693359375f), whole, 2.12194440e-4f);
    Float sum = Isa::set(1.0f / 720);
    for (const float coefficient : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        sum = Isa::add_product(Isa::set(coefficient), sum, rest);
    return Isa::where_above(x, -87.0f, Isa::by_power(sum, shifted));
}

template <class Isa>
class Attention {
public:
    using Float = typename Isa::Float;
    static constexpr int L = Isa::LANES;
    static constexpr int SCORED = Isa::SUMS / (CHUNK / L), ADDED = 2;  // queries at once

    explicit Attention(const AttentionPiece& piece)
        : q_(*piece.node->src[0]), k_(*piece.node->src[1]), v_(*piece.node->src[2]), mask_(piece.node->src[3]),
          piece_(piece), heads_(q_.ne[2] / k_.ne[2]) {
        float scale;
        std::memcpy(&scale, piece.node->op_params, sizeof scale);
        for (int64_t t = 0; t < piece.count; ++t) {
            const uint8_t* from = address(q_, row(t), head(t));
            for (int64_t d = 0; d < k_.ne[0]; d += L) Isa::store(query(t) + d, Isa::by(Isa::floats(from + 4 * d), scale));
            for (int64_t d = 0; d < v_.ne[0]; d += L) Isa::store(result(t) + d, Isa::zero());
            most_[t] = NOWHERE;
            total_[t] = 0;
        }
    }

    void run() {
        for (int64_t cell = 0; cell < k_.ne[1]; cell += CHUNK) {
            const int64_t cells = std::min<int64_t>(CHUNK, k_.ne[1] - cell);
            read_mask(cell, cells);
            if (open_count_ == 0) continue;
            widen_keys(cell, cells);
            for_open<SCORED>([&](auto n, const int* t) { score<n>(t); });
            widen_values(cell, cells);
            for_open<ADDED>([&](auto n, const int* t) { add_values<n>(t, cells); });
        }
        for (int64_t t = 0; t < piece_.count; ++t) write(t);
    }

private:
    int64_t row(int64_t t) const { return (piece_.first + t) / heads_; }
    int64_t head(int64_t t) const { return piece_.key_head * heads_ + (piece_.first + t) % heads_; }
    float* query(int64_t t) { return queries_ + t * MAX_HEAD; }
    float* result(int64_t t) { return results_ + t * MAX_HEAD; }
    float* scores(int64_t t) { return scores_ + t * CHUNK; }

    const uint8_t* address(const Tensor& tensor, int64_t i1, int64_t i2) const {
        return static_cast<const uint8_t*>(tensor.data) + size_t(i1) * tensor.nb[1] + size_t(i2) * tensor.nb[2] +
               size_t(piece_.stream) * tensor.nb[3];
    }

    // What the mask adds, into the scores; and which queries see any of these cells.
    void read_mask(int64_t cell, int64_t cells) {
        open_count_ = 0;
        bool open = false;
        for (int64_t t = 0; t < piece_.count; ++t) {
            if (t > 0 && row(t) == row(t - 1) && (mask_ == nullptr || mask_->ne[2] == 1))
                std::copy_n(scores(t - 1), CHUNK, scores(t));
            else open = read_mask_row(t, cell, cells);
            if (open) open_[open_count_++] = int(t);
        }
    }

    bool read_mask_row(int64_t t, int64_t cell, int64_t cells) {
        uint16_t halves[CHUNK];
        std::fill(halves, halves + CHUNK, uint16_t(mask_ == nullptr ? 0 : 0xfc00));
        if (mask_ != nullptr) {
            const size_t place = size_t(row(t)) * mask_->nb[1] + size_t(head(t) % mask_->ne[2]) * mask_->nb[2] +
                                 size_t(piece_.stream % mask_->ne[3]) * mask_->nb[3] + size_t(cell) * 2;
            std::memcpy(halves, static_cast<const uint8_t*>(mask_->data) + place, size_t(cells) * 2);
        }
        for (int64_t j = cells; j < CHUNK; ++j) halves[j] = 0xfc00;  // minus infinity
        for (int64_t j = 0; j < CHUNK; j += L)
            Isa::store(scores(t) + j, Isa::halves(reinterpret_cast<const uint8_t*>(halves + j)));
        return std::any_of(halves, halves + CHUNK, [](uint16_t half) { return half != 0xfc00; });
    }

    // Calls work(n, t) for all open queries: for n of them at once, a constant up to MOST, which halves at the end.
    template <int MOST, class Work>
    void for_open(const Work& work, int from = 0) {
        for (; from + MOST <= open_count_; from += MOST) work(std::integral_constant<int, MOST>(), open_ + from);
        if constexpr (MOST > 1) for_open<MOST / 2>(work, from);
    }

    const uint8_t* cached(const Tensor& cache, int64_t cell, int64_t cells, int64_t j) const {
        return address(cache, cell + std::min(j, cells - 1), piece_.key_head);
    }

    // All cells' first number, then all cells' second one: scores are then sums without any over lanes. The chunk's values
    // are fetched from memory meanwhile, and the next chunk's keys with the values: a head's rows lie apart in the cache, so
    // that a processor doesn't see them coming. (Not in a function of its own: GCC drops calls that do nothing but fetch.)
    void widen_keys(int64_t cell, int64_t cells) {
        for (int64_t j = 0; j < CHUNK; j += L)
            for (int64_t d = 0; d < k_.ne[0]; d += L) {
                Float square[L];
                if (d % 32 == 0)
                    for (int i = 0; i < L; ++i) Isa::template prefetch<1>(cached(v_, cell, cells, j + i) + 2 * d, 64);
                for (int i = 0; i < L; ++i) square[i] = Isa::halves(cached(k_, cell, cells, j + i) + 2 * d);
                Isa::transpose(square);
                for (int i = 0; i < L; ++i) Isa::store(wide_ + (d + i) * CHUNK + j, square[i]);
            }
    }

    void widen_values(int64_t cell, int64_t cells) {
        const int64_t size = v_.ne[0];
        for (int64_t j = 0; j < cells; ++j) {
            const uint8_t* from = cached(v_, cell, cells, j);
            if (cell + CHUNK + j < k_.ne[1]) Isa::template prefetch<1>(cached(k_, cell + CHUNK, cells, j), int(2 * k_.ne[0]));
            for (int64_t d = 0; d < size; d += L) Isa::store(wide_ + j * size + d, Isa::halves(from + 2 * d));
        }
    }

    // Never more than 32 products are added up one after the other, so that single precision loses little with large heads.
    template <int N>
    void score(const int* t) {
        for (int64_t d = 0; d < k_.ne[0]; d += 32) add_scores<N>(t, d, std::min<int64_t>(d + 32, k_.ne[0]));
        for (int i = 0; i < N; ++i) weigh(t[i]);
    }

    template <int N>
    void add_scores(const int* t, int64_t from, int64_t to) {
        constexpr int PARTS = CHUNK / L;
        Float sums[N][PARTS];
        for (int i = 0; i < N; ++i)
            for (int p = 0; p < PARTS; ++p) sums[i][p] = Isa::zero();
        for (int64_t d = from; d < to; ++d) {
            Float keys[PARTS];
#pragma GCC unroll 8
            for (int p = 0; p < PARTS; ++p) keys[p] = Isa::floats(wide_ + d * CHUNK + p * L);
#pragma GCC unroll 8
            for (int i = 0; i < N; ++i) {
                const float q = query(t[i])[d];
#pragma GCC unroll 8
                for (int p = 0; p < PARTS; ++p) sums[i][p] = Isa::add_scaled(sums[i][p], keys[p], q);
            }
        }
        for (int i = 0; i < N; ++i)
            for (int p = 0; p < PARTS; ++p) {
                float* found = scores(t[i]) + p * L;
                Isa::store(found, Isa::add(sums[i][p], Isa::floats(found)));
            }
    }

    // From scores their exponentials, and what came before in terms of the new maximum.
    void weigh(int64_t t) {
        float* scores = this->scores(t);
        Float most = Isa::set(most_[t]);
        for (int j = 0; j < CHUNK; j += L) most = Isa::larger(most, Isa::floats(scores + j));
        const float now = Isa::largest(most), factor = std::exp(most_[t] - now);
        Float sum = Isa::zero();
        for (int j = 0; j < CHUNK; j += L) {
            const Float weight = exponential<Isa>(Isa::add(Isa::floats(scores + j), Isa::set(-now)));
            Isa::store(scores + j, weight);
            sum = Isa::add(sum, weight);
        }
        total_[t] = total_[t] * factor + Isa::sum(sum);
        most_[t] = now;
        factor_[t] = factor;
    }

    template <int N>
    void add_values(const int* t, int64_t cells) {
        add_columns<N, Isa::SUMS / ADDED>(t, cells, 0);
    }

    // From column d on, so many vectors at once, and half as many at the end.
    template <int N, int WIDTH>
    void add_columns(const int* t, int64_t cells, int64_t d) {
        const int64_t size = v_.ne[0];
        for (; d + WIDTH * L <= size; d += WIDTH * L) {
            Float sums[N][WIDTH];
            for (int i = 0; i < N; ++i)
                for (int p = 0; p < WIDTH; ++p)
                    sums[i][p] = Isa::by(Isa::floats(result(t[i]) + d + p * L), factor_[t[i]]);
            for (int64_t j = 0; j < cells; ++j) {
                Float values[WIDTH];
#pragma GCC unroll 8
                for (int p = 0; p < WIDTH; ++p) values[p] = Isa::floats(wide_ + j * size + d + p * L);
#pragma GCC unroll 8
                for (int i = 0; i < N; ++i) {
                    const float weight = scores(t[i])[j];
#pragma GCC unroll 8
                    for (int p = 0; p < WIDTH; ++p) sums[i][p] = Isa::add_scaled(sums[i][p], values[p], weight);
                }
            }
            for (int i = 0; i < N; ++i)
                for (int p = 0; p < WIDTH; ++p) Isa::store(result(t[i]) + d + p * L, sums[i][p]);
        }
        if constexpr (WIDTH > 1)
            if (d < size) add_columns<N, WIDTH / 2>(t, cells, d);
    }

    void write(int64_t t) {
        const int64_t size = v_.ne[0], place = (piece_.stream * q_.ne[1] + row(t)) * q_.ne[2] + head(t);
        float* to = static_cast<float*>(piece_.node->data) + place * size;
        const float share = total_[t] > 0 ? 1 / total_[t] : 0.0f;
        for (int64_t d = 0; d < size; d += L) Isa::store(to + d, Isa::by(Isa::floats(result(t) + d), share));
    }

    const Tensor &q_, &k_, &v_;
    const Tensor* mask_;
    const AttentionPiece& piece_;
    int64_t heads_;  // that share a head of keys
    int open_count_, open_[MAX_QUERIES];  // queries that see any cell of the chunk
    float most_[MAX_QUERIES], total_[MAX_QUERIES], factor_[MAX_QUERIES];
    alignas(64) float scores_[MAX_QUERIES * CHUNK];
    alignas(64) float queries_[MAX_QUERIES * MAX_HEAD], results_[MAX_QUERIES * MAX_HEAD];
    alignas(64) float wide_[CHUNK * MAX_HEAD];  // of a chunk the keys, transposed, or the values
};

template <class Isa>
void attend(const AttentionPiece& piece) {
    Attention<Isa>(piece).run();
}

}  // namespace edgespec
