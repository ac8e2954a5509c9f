// Every instruction set of the kernels that runs here against plain C++, on random weights of all types and odd shapes.
// Products must have the same bits; attention may be off by rounding. Exit status 1 where something differs.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" {
const char* edgespec_path(int index);
size_t edgespec_matrix_bytes(int type, int64_t inputs, int64_t outputs, const char* path);
void edgespec_repack(int type, const uint8_t* source, int64_t inputs, int64_t outputs, const char* path, uint8_t* target);
void edgespec_multiply(int type, const uint8_t* tiles, int64_t inputs, int64_t outputs, const char* path, const float* rows,
                       int64_t count, float* target);
void edgespec_attend(const char* path, const float* q, const uint16_t* k, const uint16_t* v, const uint16_t* mask, int64_t rows,
                     int64_t heads, int64_t key_heads, int64_t cells, int64_t size, int64_t value_size, float scale,
                     int64_t piece, float* target);
}

namespace {

struct Weights {  // of ggml's: numbers and bytes of a block, and where its numbers in half precision are
    const char* name;
    int type, numbers, bytes;
    std::vector<int> halves;
};

const std::vector<Weights> ALL = {
    {"Q4_0", 2, 32, 18, {0}},          {"Q4_1", 3, 32, 20, {0, 2}},       {"Q5_0", 6, 32, 22, {0}},
    {"Q5_1", 7, 32, 24, {0, 2}},       {"Q8_0", 8, 32, 34, {0}},          {"Q4_K", 12, 256, 144, {0, 2}},
    {"Q5_K", 13, 256, 176, {0, 2}},    {"Q6_K", 14, 256, 210, {208}},
};

std::mt19937 generator(1);

uint16_t half() { return uint16_t(0x1c00 + generator() % 0x1800 + (generator() & 0x8000)); }  // 0.004 to 0.5, or minus that

std::vector<float> floats(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> made(count);
    for (float& value : made) value = normal(generator);
    return made;
}

std::vector<uint16_t> halves(size_t count) {
    std::vector<uint16_t> made(count);
    for (uint16_t& value : made) value = half();
    return made;
}

std::vector<uint8_t> random_matrix(const Weights& weights, int64_t inputs, int64_t outputs) {
    std::vector<uint8_t> made(size_t(inputs / weights.numbers * outputs * weights.bytes));
    for (uint8_t& byte : made) byte = uint8_t(generator());
    for (size_t block = 0; block < made.size(); block += size_t(weights.bytes))
        for (int at : weights.halves) {
            const uint16_t value = half();
            std::memcpy(&made[block + size_t(at)], &value, sizeof value);
        }
    return made;
}

std::vector<float> product(const Weights& weights, const std::vector<uint8_t>& source, const std::vector<float>& x,
                           int64_t inputs, int64_t outputs, int64_t rows, const char* path) {
    std::vector<uint8_t> tiles(edgespec_matrix_bytes(weights.type, inputs, outputs, path));
    edgespec_repack(weights.type, source.data(), inputs, outputs, path, tiles.data());
    std::vector<float> y(size_t(rows * outputs));
    edgespec_multiply(weights.type, tiles.data(), inputs, outputs, path, x.data(), rows, y.data());
    return y;
}

int compare_products(const std::vector<std::string>& paths) {
    int differing = 0;
    for (const Weights& weights : ALL)
        for (int64_t inputs : {256, 768})
            for (int64_t outputs : {1, 16, 37})
                for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 33}) {
                    const auto source = random_matrix(weights, inputs, outputs);
                    const auto x = floats(size_t(rows * inputs));
                    const auto plain = product(weights, source, x, inputs, outputs, rows, "plain");
                    for (const std::string& path : paths) {
                        const auto y = product(weights, source, x, inputs, outputs, rows, path.c_str());
                        if (std::memcmp(y.data(), plain.data(), y.size() * sizeof(float)) == 0) continue;
                        std::printf("%s %s: %d inputs, %d outputs, %d rows: %g instead of %g\n", path.c_str(), weights.name,
                                    int(inputs), int(outputs), int(rows), double(y[0]), double(plain[0]));
                        ++differing;
                    }
                }
    return differing;
}

// Largest difference from plain C++.
double attention_error(const std::string& path) {
    double most = 0;
    for (int64_t size : {64, 80, 128})
        for (int64_t cells : {32, 100})
            for (int64_t rows : {1, 5, 16}) {
                const int64_t heads = 6, key_heads = 2;
                const auto q = floats(size_t(rows * heads * size));
                const auto k = halves(size_t(key_heads * cells * size)), v = halves(size_t(key_heads * cells * size));
                std::vector<uint16_t> mask(size_t(rows * cells));
                for (int64_t r = 0; r < rows; ++r)
                    for (int64_t c = 0; c < cells; ++c) mask[size_t(r * cells + c)] = c > cells - 16 + r ? 0xfc00 : 0;
                std::vector<float> results[2];
                for (int i : {0, 1}) {
                    results[i].resize(size_t(rows * heads * size));
                    edgespec_attend(i ? path.c_str() : "plain", q.data(), k.data(), v.data(), mask.data(), rows, heads, key_heads,
                                    cells, size, size, 0.1f, 16, results[i].data());
                }
                for (size_t i = 0; i < results[0].size(); ++i)
                    most = std::fmax(most, std::fabs(double(results[0][i]) - double(results[1][i])));
            }
    return most;
}

}  // namespace

int main() {
    std::vector<std::string> paths;
    for (int i = 0; const char* name = edgespec_path(i); ++i) paths.emplace_back(name);
    int wrong = compare_products(paths);
    std::printf("products: %d differ from plain C++\n", wrong);
    for (const std::string& path : paths) {
        const double error = attention_error(path);
        std::printf("attention, %s: off by %.1e at most\n", path.c_str(), error);
        wrong += !(error < 1e-5);
    }
    return wrong != 0;
}
