#include "ggml_abi.h"

#include <cstring>

namespace edgespec {

namespace {

constexpr size_t OBJECT_SIZE = 32;  // ggml's own header of a tensor
constexpr int LAST_SEARCHED = 128;  // operations; CUSTOM is near the end of about 100

int operation(const Ggml& ggml, const char* name) {
    for (int op = 0; op < LAST_SEARCHED; ++op)
        if (std::strcmp(ggml.ggml_op_name(op), name) == 0) return op;
    return -1;
}

const char* check_tensors(const Ggml& ggml) {
    if (ggml.ggml_tensor_overhead() != OBJECT_SIZE + sizeof(Tensor)) return "its tensors have another size";
    Context* context = ggml.ggml_init({4096, nullptr, true});
    if (context == nullptr) return "it makes no context";
    const Tensor* tensor = ggml.ggml_new_tensor_2d(context, int(TYPE_F32), 3, 5);
    const bool fits = tensor->type == TYPE_F32 && tensor->ne[0] == 3 && tensor->ne[1] == 5 && tensor->ne[3] == 1 &&
                      tensor->nb[0] == 4 && tensor->nb[1] == 12 && tensor->data == nullptr && tensor->op == 0;
    ggml.ggml_free(context);
    return fits ? nullptr : "its tensors have another layout";
}

}  // namespace

const char* check_abi(const Ggml& ggml, Operations* operations) {
    if (std::strcmp(ggml.ggml_type_name(14), "q6_K") != 0 || std::strcmp(ggml.ggml_type_name(TYPE_I32), "i32") != 0)
        return "its types have other numbers";
    Device* cpu = ggml.ggml_backend_dev_by_type(DEVICE_CPU);
    if (cpu == nullptr) return "it has no CPU device";
    const Registry* registry = ggml.ggml_backend_dev_backend_reg(cpu);
    if (registry->api_version != BACKEND_API) return "its backend interface has another version";
    if (const char* problem = check_tensors(ggml)) return problem;
    *operations = {operation(ggml, "MUL_MAT"), operation(ggml, "GET_ROWS"), operation(ggml, "FLASH_ATTN_EXT"),
                   operation(ggml, "CUSTOM")};
    if (operations->mul_mat < 0 || operations->get_rows < 0 || operations->attention < 0 ||
        operations->custom < 0)
        return "its operations have other names";
    return nullptr;
}

}  // namespace edgespec
