// Attention of a few rows over a cache of half-precision keys and values: one function for each instruction set.
//
// ggml's own takes each row's keys from memory anew, adds values up in half precision, and works in another order once
// there are many rows. Here rows and the heads that share keys read them once, sums are in single precision, and the
// order of additions for one row depends on nothing but the places of its tokens in the cache.
#pragma once

#include <cstdint>

#include "ggml_abi.h"

namespace edgespec {

constexpr int64_t MAX_HEAD = 256;  // size of a head
constexpr int64_t MAX_QUERIES = 32;  // of a piece

// The part that one call works on: `count` queries of those that read the same head of keys. Query t is row t / heads
// and head t % heads of its group.
struct AttentionPiece {
    const Tensor* node;
    int64_t stream, key_head, first, count;
};

using AttentionFunction = void (*)(const AttentionPiece& piece);

// Whether this node of the kind FLASH_ATTN_EXT is one that the functions compute.
bool is_plain_attention(const Tensor& node);

}  // namespace edgespec
