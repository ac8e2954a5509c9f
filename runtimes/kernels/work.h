// What stands in for a node of ggml's graph: a function that ggml's own threads run.
#pragma once

#include <atomic>
#include <cstdint>

#include "attention.h"
#include "ggml_abi.h"
#include "product.h"

namespace edgespec {

// Rows of floats into blocks of integers, shared by the products that follow.
struct Quantization {
    Quantizer quantize;
    const Tensor* source;
    RowBlock* rows;

    static void run(Tensor*, int thread, int threads, void* self);
};

struct Product {
    TileProduct multiply;
    int columns;
    size_t tile_size;
    const uint8_t* tiles;
    int64_t inputs, outputs, count;
    const RowBlock* rows;
    float* target;
    std::atomic<int64_t> next{0};  // tile that nobody has taken yet

    static void run(Tensor*, int thread, int threads, void* self);
};

// Rows of a tiled matrix as floats: token embeddings.
struct Lookup {
    Type type;
    int columns;
    const Tensor* node;

    static void run(Tensor*, int thread, int threads, void* self);
};

// All heads and rows of a FLASH_ATTN_EXT node.
struct Attending {
    AttentionFunction attend;
    const Tensor* node;
    std::atomic<int64_t> next{0};  // piece that nobody has taken yet

    static void run(Tensor*, int thread, int threads, void* self);
};

int64_t row_count(const Tensor& tensor);

}  // namespace edgespec
