#include "layout.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <thread>
#include <vector>

namespace edgespec {

namespace {

constexpr int64_t WORTH_A_THREAD = 1 << 18;  // weights

// 32 weights as the file has them, taken apart.
struct Block {
    uint8_t q[BLOCK];    // Q8_0: the signed byte's bits
    uint8_t scales[4];   // what stands in the tile for this column: scale, then minimum or second scale
    uint8_t factors[4];  // of the super-block
};

uint16_t load16(const uint8_t* p) {
    uint16_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

// 6-bit scales and minima of 8 blocks share 12 bytes in Q4_K and Q5_K.
void small_scale(const uint8_t* packed, int i, uint8_t* scale, uint8_t* minimum) {
    if (i < 4) {
        *scale = packed[i] & 63;
        *minimum = packed[i + 4] & 63;
    } else {
        *scale = uint8_t((packed[i + 4] & 15) | (packed[i - 4] >> 6 << 4));
        *minimum = uint8_t((packed[i + 4] >> 4) | (packed[i] >> 6 << 4));
    }
}

void read_simple(Type type, const uint8_t* source, Block& block) {
    const Format f = format_of(type);
    const int halves = f.minimum ? 4 : 2;
    std::memcpy(block.scales, source, size_t(halves));
    source += halves;
    if (f.bits == 8) {
        std::memcpy(block.q, source, BLOCK);
        return;
    }
    uint32_t high = 0;
    if (f.bits == 5) {
        std::memcpy(&high, source, sizeof high);
        source += sizeof high;
    }
    for (int i = 0; i < 16; ++i) {
        block.q[i] = uint8_t((source[i] & 15) | ((high >> i & 1) << 4));
        block.q[i + 16] = uint8_t((source[i] >> 4) | ((high >> (i + 16) & 1) << 4));
    }
}

// Block i (0 to 7) of a Q4_K or Q5_K super-block.
void read_k45(Type type, const uint8_t* source, int i, Block& block) {
    std::memcpy(block.factors, source, 4);
    small_scale(source + 4, i, &block.scales[0], &block.scales[1]);
    const bool five = type == Type::Q5_K;
    const uint8_t* high = source + 16;
    const uint8_t* low = source + (five ? 48 : 16) + i / 2 * BLOCK;
    for (int k = 0; k < BLOCK; ++k) {
        block.q[k] = i % 2 ? low[k] >> 4 : low[k] & 15;
        if (five) block.q[k] |= uint8_t((high[k] >> i & 1) << 4);
    }
}

// Block i (0 to 7) of a Q6_K super-block: 128 bytes of nibbles, 64 of 2-bit pairs, 16 scales, one factor.
void read_k6(const uint8_t* source, int i, Block& block) {
    const int half = i / 4, quarter = i % 4;
    const uint8_t* low = source + half * 64 + quarter % 2 * BLOCK;
    const uint8_t* high = source + 128 + half * BLOCK;
    for (int k = 0; k < BLOCK; ++k) {
        const int nibble = quarter < 2 ? low[k] & 15 : low[k] >> 4;
        block.q[k] = uint8_t(nibble | (high[k] >> 2 * quarter & 3) << 4);
    }
    std::memcpy(block.scales, source + 192 + 2 * i, 2);
    std::memcpy(block.factors, source + 208, 2);
}

void read_block(Type type, const uint8_t* row, int64_t i, Block& block) {
    const Format f = format_of(type);
    if (!f.super) return read_simple(type, row + i * f.file_bytes, block);
    const uint8_t* source = row + i / 8 * f.file_bytes;
    return type == Type::Q6_K ? read_k6(source, int(i % 8), block) : read_k45(type, source, int(i % 8), block);
}

// Offsets into a tile.
struct Place {
    size_t factors, nibbles, high, scales;
};

Place place_of(const Format& f, int64_t i, int columns) {
    Place place{};
    const size_t block = size_t(block_bytes(f)) * size_t(columns), factors = size_t(factor_bytes(f)) * size_t(columns);
    if (f.super) {
        place.factors = size_t(i / 8) * (8 * block + factors);
        place.nibbles = place.factors + factors + size_t(i % 8) * block;
    } else {
        place.nibbles = size_t(i) * block;
    }
    place.high = place.nibbles + size_t(nibble_bytes(f)) * size_t(columns);
    place.scales = place.high + size_t(high_bytes(f)) * size_t(columns);
    return place;
}

// Sizes of the one to two numbers that a column has among the scales or the factors, which lie by kind and then by column.
int scale_size(const Format& f) { return f.super ? 1 : 2; }

// Four integers at a time, a byte each. The order of bytes in a word doesn't matter: they stay where they are.
void write_block(const Format& f, const Block& block, const Place& place, int column, int columns, uint8_t* tile) {
    uint32_t groups[GROUPS];
    std::memcpy(groups, block.q, sizeof groups);
    const auto write = [&](size_t part, int vector, uint32_t word) {
        std::memcpy(tile + part + 4 * size_t(vector * columns + column), &word, sizeof word);
    };
    constexpr uint32_t LOW = 0x0f0f0f0f;
    for (int v = 0; v < (f.bits == 8 ? GROUPS : GROUPS / 2); ++v)
        write(place.nibbles, v, f.bits == 8 ? groups[v] : (groups[2 * v] & LOW) | (groups[2 * v + 1] & LOW) << 4);
    const int high_vectors = high_bytes(f) / 4, in_each = high_vectors ? GROUPS / high_vectors : 0;
    for (int v = 0; v < high_vectors; ++v) {
        uint32_t word = 0;
        for (int g = 0; g < in_each; ++g) word |= (groups[v * in_each + g] >> 4 & LOW) << g * (f.bits - 4);
        write(place.high, v, word);
    }
    const int size = scale_size(f), numbers = scale_bytes(f) / size;
    for (int n = 0; n < numbers; ++n)
        std::memcpy(tile + place.scales + (n * columns + column) * size, block.scales + n * size, size_t(size));
    for (int n = 0; n < factor_bytes(f) / 2; ++n)
        std::memcpy(tile + place.factors + (n * columns + column) * 2, block.factors + 2 * n, 2);
}

int integer_at(const Format& f, const Place& place, const uint8_t* tile, int column, int columns, int i) {
    const int group = i / 4, k = i % 4;
    const auto at = [&](size_t part, int vector) {
        return tile[part + size_t(vector) * 4 * size_t(columns) + 4 * size_t(column) + size_t(k)];
    };
    if (f.bits == 8) return int8_t(at(place.nibbles, group));
    int q = at(place.nibbles, group / 2) >> (group % 2 ? 4 : 0) & 15;
    if (f.bits == 5) q |= (at(place.high, 0) >> group & 1) << 4;
    if (f.bits == 6) q |= (at(place.high, group / 4) >> 2 * (group % 4) & 3) << 4;
    return q;
}

}  // namespace

bool is_known(int type) {
    for (Type known : {Type::Q4_0, Type::Q4_1, Type::Q5_0, Type::Q5_1, Type::Q8_0, Type::Q4_K, Type::Q5_K, Type::Q6_K})
        if (int(known) == type) return true;
    return false;
}

size_t matrix_bytes(Type type, int64_t inputs, int64_t outputs, int columns) {
    return tile_bytes(format_of(type), inputs, columns) * size_t((outputs + columns - 1) / columns);
}

void repack(Type type, const uint8_t* source, int64_t inputs, int64_t outputs, int columns, uint8_t* target) {
    const Format f = format_of(type);
    const size_t row = size_t(inputs / f.file_block) * size_t(f.file_bytes), tile = tile_bytes(f, inputs, columns);
    const int64_t tiles = (outputs + columns - 1) / columns;
    std::atomic<int64_t> next{0};
    const auto work = [&] {
        for (int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < tiles;) {
            uint8_t* to = target + size_t(t) * tile;
            std::memset(to, 0, tile);
            for (int64_t output = t * columns; output < std::min(outputs, (t + 1) * columns); ++output)
                for (int64_t i = 0; i < inputs / BLOCK; ++i) {
                    Block block;
                    read_block(type, source + size_t(output) * row, i, block);
                    write_block(f, block, place_of(f, i, columns), int(output % columns), columns, to);
                }
        }
    };
    std::vector<std::thread> others;
    const int64_t most = std::min<int64_t>(std::thread::hardware_concurrency(), inputs * outputs / WORTH_A_THREAD);
    try {
        for (int64_t i = 1; i < most; ++i) others.emplace_back(work);
    } catch (const std::exception&) {  // no more threads or memory: those that there are do it
    }
    work();
    for (std::thread& other : others) other.join();
}

void unpack_column(Type type, const uint8_t* tiles, int64_t inputs, int columns, int64_t output, float* target) {
    const Format f = format_of(type);
    const uint8_t* tile = tiles + size_t(output / columns) * tile_bytes(f, inputs, columns);
    const int column = int(output % columns);
    for (int64_t i = 0; i < inputs / BLOCK; ++i) {
        const Place place = place_of(f, i, columns);
        const auto half = [&](size_t part, int n) { return half_to_float(load16(tile + part + (n * columns + column) * 2)); };
        const auto byte = [&](int n) { return tile[place.scales + size_t(n * columns + column)]; };
        float scale[2], minimum = 0;
        if (type == Type::Q6_K) {
            for (int n = 0; n < 2; ++n) scale[n] = half(place.factors, 0) * float(int8_t(byte(n)));
        } else if (f.super) {
            scale[0] = scale[1] = half(place.factors, 0) * float(byte(0));
            minimum = -(half(place.factors, 1) * float(byte(1)));
        } else {
            scale[0] = scale[1] = half(place.scales, 0);
            if (f.minimum) minimum = half(place.scales, 1);
        }
        for (int k = 0; k < BLOCK; ++k)
            target[i * BLOCK + k] =
                float(integer_at(f, place, tile, column, columns, k) - f.offset) * scale[k / 16] + minimum;
    }
}

float half_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    uint32_t out;
    if (exponent == 31) {
        out = sign | 0x7f800000u | fraction << 13;
    } else if (exponent != 0) {
        out = sign | (exponent + 112) << 23 | fraction << 13;
    } else {  // subnormal: fraction / 2^24
        float value = float(fraction) / 16777216.0f;
        std::memcpy(&out, &value, sizeof out);
        out |= sign;
    }
    float value;
    std::memcpy(&value, &out, sizeof value);
    return value;
}

}  // namespace edgespec
