// Sums of products, written once for the instruction sets that multiply the four bytes of each lane and add them up.
//
// `Isa` supplies Int, no_sum() and:
//
//   plus(a, b), multiply(a, b)   sums and products of int32
//   dot(sum, w, x)               sum + the products of weights and inputs
//   signed_bytes(p), same(int)   int32: from LANES signed bytes; the same in every lane
//
// What the classes stand for is said in product_template.h.
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

// One scale for a whole block.
template <class Isa, class Dot>
struct ScaledByteDot {
    using Int = typename Isa::Int;
    Dot dot;

    template <int V>
    void add(const Int& a, const Int& b, typename Isa::Group x, typename Isa::Group y, const Int& scale, const Int&, Int& sum) {
        dot.template add<V>(a, b, x, y);
        if constexpr (V == 3) sum = Isa::plus(sum, Isa::multiply(dot.total(), scale));
    }
};

// A scale for each half.
template <class Isa>
struct HalvesDot {
    using Int = typename Isa::Int;
    Int half;

    template <int V>
    void add(const Int& a, const Int& b, typename Isa::Group x, typename Isa::Group y, const Int& first, const Int& second,
             Int& sum) {
        half = Isa::dot(Isa::dot(V % 2 == 0 ? Isa::no_sum() : half, a, x), b, y);
        if constexpr (V % 2 == 1) sum = Isa::plus(sum, Isa::multiply(half, V < 2 ? first : second));
    }
};

template <class Isa>
struct BytePair {
    typename Isa::Int first, second;

    BytePair() = default;
    BytePair(const uint8_t* p, const uint8_t* q) : first(Isa::signed_bytes(p)), second(Isa::signed_bytes(q)) {}
    typename Isa::Int times(const int16_t* two) const {
        return Isa::plus(Isa::multiply(first, Isa::same(two[0])), Isa::multiply(second, Isa::same(two[1])));
    }
};

}  // namespace edgespec
