// Weights in the order in which the products read them.
//
// A tile holds `columns` output columns (rows of the weight matrix, in ggml's terms) and all their inputs, block after
// block. A block is 32 inputs of every column in the tile: eight groups of 4 consecutive inputs. A vector holds one
// group of each column, 4 bytes a column; its low nibbles belong to group 2v, its high nibbles to group 2v + 1, for
// v = 0 to 3. Bits beyond the fourth follow in vectors of their own, then scales and minima. K types keep the half-precision
// factors of 256 inputs in front of their 8 blocks. Nothing is rounded: every number of the file is still there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgespec {

constexpr int BLOCK = 32;        // inputs that share a scale
constexpr int GROUPS = 8;        // of 4 inputs in a block
constexpr int SUPER = 256;       // inputs of a K type's super-block
constexpr int MAX_COLUMNS = 16;  // of a tile

// Values are ggml's numbers of the types.
enum class Type : int { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

struct Format {
    int bits;        // of an integer
    int offset;      // subtracted from it: weight = scale * (integer - offset) [+ or - minimum]
    bool minimum;    // whether a minimum belongs to each block
    bool super;      // whether scales are small integers times a factor of 256 inputs
    int file_block;  // inputs of a block in the file
    int file_bytes;  // bytes of a block in the file
};

constexpr Format format_of(Type type) {
    switch (type) {
        case Type::Q4_0: return {4, 8, false, false, 32, 18};
        case Type::Q4_1: return {4, 0, true, false, 32, 20};
        case Type::Q5_0: return {5, 16, false, false, 32, 22};
        case Type::Q5_1: return {5, 0, true, false, 32, 24};
        case Type::Q8_0: return {8, 0, false, false, 32, 34};
        case Type::Q4_K: return {4, 0, true, true, 256, 144};
        case Type::Q5_K: return {5, 0, true, true, 256, 176};
        case Type::Q6_K: return {6, 32, false, true, 256, 210};
    }
    return {};
}

bool is_known(int type);

// Where the parts of a block lie, in bytes per column of the tile.
constexpr int nibble_bytes(const Format& f) { return f.bits == 8 ? 32 : 16; }
constexpr int high_bytes(const Format& f) { return f.bits == 5 ? 4 : f.bits == 6 ? 8 : 0; }
// Q6_K has two signed scales a block, Q4_K and Q5_K a scale and a minimum of a byte each, the others half-precision ones.
constexpr int scale_bytes(const Format& f) { return f.super ? 2 : f.minimum ? 4 : 2; }
constexpr int block_bytes(const Format& f) { return nibble_bytes(f) + high_bytes(f) + scale_bytes(f); }
// Half-precision factors in front of a super-block.
constexpr int factor_bytes(const Format& f) { return !f.super ? 0 : f.minimum ? 4 : 2; }

// Bytes of a tile of so many columns.
constexpr size_t tile_bytes(const Format& f, int64_t inputs, int columns) {
    const int64_t blocks = inputs / BLOCK, supers = f.super ? inputs / SUPER : 0;
    return size_t(columns) * size_t(blocks * block_bytes(f) + supers * factor_bytes(f));
}

// Bytes of a whole matrix; its last tile is filled up with zeros.
size_t matrix_bytes(Type type, int64_t inputs, int64_t outputs, int columns);

// Bring a matrix from the file's order, outputs * inputs, into tiles. `target` holds `matrix_bytes`.
void repack(Type type, const uint8_t* source, int64_t inputs, int64_t outputs, int columns, uint8_t* target);

// One output column's weights as floats, worked out in ggml's order of operations.
void unpack_column(Type type, const uint8_t* tiles, int64_t inputs, int columns, int64_t output, float* target);

float half_to_float(uint16_t bits);

}  // namespace edgespec
