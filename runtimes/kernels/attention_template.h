// Attention, written once for all instruction sets: with a running maximum over chunks of the cache, as in "Online
// normalizer calculation for softmax" (Milakov and Gimelshein, 2018) and FlashAttention (Dao et al., 2022).
//
// Beyond what products need, `Isa` supplies:
//
//   floats(p), set(float), larger(a, b), add(a, b)
//   sums_of(v)           lane i of the result is the sum over the lanes of v[i], LANES vectors in all
//   by_power(a, n)       a * 2^n for whole n, given as n + 1.5 * 2^23
//   where_above(x, least, a)   a in the lanes where x > least, 0 elsewhere
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention.h"

namespace edgespec {

constexpr int64_t CHUNK = 32;  // cells
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
            const int64_t cells = std::min(CHUNK, k_.ne[1] - cell);
            if (!read_mask(cell, cells)) continue;
            widen(k_, cell, cells);
            for (int64_t t = 0; t < piece_.count; ++t)
                if (open_[t]) score(t);
            widen(v_, cell, cells);
            for (int64_t t = 0; t < piece_.count; ++t)
                if (open_[t]) add_values(t, cells);
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

    // What the mask adds, into the scores. False: nobody sees any of these cells.
    bool read_mask(int64_t cell, int64_t cells) {
        bool any = false;
        for (int64_t t = 0; t < piece_.count; ++t) {
            uint16_t halves[CHUNK];
            std::fill(halves, halves + CHUNK, uint16_t(mask_ == nullptr ? 0 : 0xfc00));
            if (mask_ != nullptr) {
                const size_t place = size_t(row(t)) * mask_->nb[1] + size_t(head(t) % mask_->ne[2]) * mask_->nb[2] +
                                     size_t(piece_.stream % mask_->ne[3]) * mask_->nb[3] + size_t(cell) * 2;
                std::memcpy(halves, static_cast<const uint8_t*>(mask_->data) + place, size_t(cells) * 2);
            }
            for (int64_t j = cells; j < CHUNK; ++j) halves[j] = 0xfc00;  // minus infinity
            open_[t] = std::any_of(halves, halves + CHUNK, [](uint16_t half) { return half != 0xfc00; });
            any = any || open_[t];
            for (int64_t j = 0; j < CHUNK; j += L)
                Isa::store(scores(t) + j, Isa::halves(reinterpret_cast<const uint8_t*>(halves + j)));
        }
        return any;
    }

    void widen(const Tensor& cache, int64_t cell, int64_t cells) {
        const int64_t size = cache.ne[0];
        for (int64_t j = 0; j < CHUNK; ++j) {
            const uint8_t* from = address(cache, cell + std::min(j, cells - 1), piece_.key_head);
            for (int64_t d = 0; d < size; d += L) Isa::store(wide_ + j * size + d, Isa::halves(from + 2 * d));
        }
    }

    // Scores, from these their exponentials, and what came before in terms of the new maximum.
    void score(int64_t t) {
        const int64_t size = k_.ne[0];
        float* scores = this->scores(t);
        Float most = Isa::set(most_[t]);
        for (int64_t j = 0; j < CHUNK; j += L) {
            Float sums[L];
            for (int i = 0; i < L; ++i) sums[i] = Isa::zero();
            for (int64_t d = 0; d < size; d += L) {
                const Float q = Isa::floats(query(t) + d);
#pragma GCC unroll 16
                for (int i = 0; i < L; ++i)
                    sums[i] = Isa::add_product(sums[i], q, Isa::floats(wide_ + (j + i) * size + d));
            }
            const Float found = Isa::add(Isa::sums_of(sums), Isa::floats(scores + j));
            Isa::store(scores + j, found);
            most = Isa::larger(most, found);
        }
        float lanes[L];
        Isa::store(lanes, most);
        const float now = *std::max_element(lanes, lanes + L), factor = std::exp(most_[t] - now);
        Float sum = Isa::zero();
        for (int64_t j = 0; j < CHUNK; j += L) {
            const Float weight = exponential<Isa>(Isa::add(Isa::floats(scores + j), Isa::set(-now)));
            Isa::store(scores + j, weight);
            sum = Isa::add(sum, weight);
        }
        Isa::store(lanes, sum);
        float total = 0;
        for (float lane : lanes) total += lane;
        total_[t] = total_[t] * factor + total;
        most_[t] = now;
        factor_[t] = factor;
    }

    void add_values(int64_t t, int64_t cells) {
        int64_t d = 0;
        for (; d + 8 * L <= v_.ne[0]; d += 8 * L) add_columns<8>(t, cells, d);
        for (; d < v_.ne[0]; d += L) add_columns<1>(t, cells, d);
    }

    template <int WIDTH>
    void add_columns(int64_t t, int64_t cells, int64_t d) {
        const int64_t size = v_.ne[0];
        const float* weights = scores(t);
        float* result = this->result(t) + d;
        Float sums[WIDTH];
        for (int i = 0; i < WIDTH; ++i) sums[i] = Isa::by(Isa::floats(result + i * L), factor_[t]);
        for (int64_t j = 0; j < cells; ++j) {
#pragma GCC unroll 8
            for (int i = 0; i < WIDTH; ++i)
                sums[i] = Isa::add_scaled(sums[i], Isa::floats(wide_ + j * size + d + i * L), weights[j]);
        }
        for (int i = 0; i < WIDTH; ++i) Isa::store(result + i * L, sums[i]);
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
    bool open_[MAX_QUERIES];
    float most_[MAX_QUERIES], total_[MAX_QUERIES], factor_[MAX_QUERIES];
    alignas(64) float scores_[MAX_QUERIES * CHUNK];
    alignas(64) float queries_[MAX_QUERIES * MAX_HEAD], results_[MAX_QUERIES * MAX_HEAD];
    alignas(64) float wide_[CHUNK * MAX_HEAD];  // keys or values of a chunk
};

template <class Isa>
void attend(const AttentionPiece& piece) {
    Attention<Isa>(piece).run();
}

}  // namespace edgespec
