// Sums of products, written once for the instruction sets that multiply the four bytes of each lane and add them up.
//
// `Isa` supplies Int, minus(v, int), and:
//
//   no_sum(), plus(a, b), multiply(a, b)   zero; sums and products of int32
//   dot(sum, w, x)                         sum + the products of weights and inputs
//   signed_bytes(p)                        int32 from LANES signed bytes
//
// What a `Dot` is stands in product_template.h.
#pragma once

#include <cstdint>

namespace edgespec {

template <class Isa>
struct ByteDot {
    typename Isa::Int sum;

    template <int V>
    void add(const typename Isa::Int& a, const typename Isa::Int& b, typename Isa::Group x, typename Isa::Group y) {
        sum = Isa::dot(Isa::dot(V == 0 ? Isa::no_sum() : sum, a, x), b, y);
    }
    typename Isa::Int total() const { return sum; }
};

template <class Isa>
struct ByteScales {
    typename Isa::Int first, second;

    ByteScales() = default;
    ByteScales(const uint8_t* p, const uint8_t* q) : first(Isa::signed_bytes(p)), second(Isa::signed_bytes(q)) {}
};

// Each half of a block has a scale of its own. Sums are below 2^17 in size and scales below 2^8.
template <class Isa>
struct HalvesDot {
    typename Isa::Int half[2];

    template <int V>
    void add(const typename Isa::Int& a, const typename Isa::Int& b, typename Isa::Group x, typename Isa::Group y,
             const ByteScales<Isa>&) {
        half[V / 2] = Isa::dot(Isa::dot(V % 2 == 0 ? Isa::no_sum() : half[V / 2], a, x), b, y);
    }
    typename Isa::Int total(const ByteScales<Isa>& scales, const int16_t* sums) const {
        return Isa::plus(Isa::multiply(Isa::minus(half[0], 32 * sums[0]), scales.first),
                         Isa::multiply(Isa::minus(half[1], 32 * sums[1]), scales.second));
    }
};

}  // namespace edgespec
