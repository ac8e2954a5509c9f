#include "attention.h"

#include <cstring>

namespace edgespec {

namespace {

// Sizes are multiples of the widest vector's 16 numbers.
bool is_cache(const Tensor* tensor) {
    return tensor->type == TYPE_F16 && tensor->nb[0] == 2 && tensor->ne[0] % 16 == 0 && tensor->ne[0] <= MAX_HEAD;
}

}  // namespace

bool is_plain_attention(const Tensor& node) {
    const Tensor *q = node.src[0], *k = node.src[1], *v = node.src[2], *mask = node.src[3], *sinks = node.src[4];
    float parameters[3];  // scale, largest ALiBi slope, softcap
    std::memcpy(parameters, node.op_params, sizeof parameters);
    const bool contiguous = node.nb[0] == 4 && node.nb[1] == 4 * size_t(node.ne[0]) &&
                            node.nb[2] == node.nb[1] * size_t(node.ne[1]) && node.nb[3] == node.nb[2] * size_t(node.ne[2]);
    return parameters[1] == 0 && parameters[2] == 0 && sinks == nullptr && contiguous && q->type == TYPE_F32 &&
           q->nb[0] == 4 && is_cache(k) && is_cache(v) && v->ne[1] == k->ne[1] && v->ne[2] == k->ne[2] &&
           q->ne[2] % k->ne[2] == 0 && q->ne[3] == k->ne[3] && q->ne[3] == v->ne[3] &&
           (mask == nullptr || (mask->type == TYPE_F16 && mask->nb[0] == 2));
}

}  // namespace edgespec
