// The part of ggml's binary interface that a device needs, as llama.cpp has it since version 2 of its backend interface.
//
// Declared here because packages that ship ggml's libraries don't ship this header. `check_abi` holds it against the
// library that is really there before anything is registered. Members that are not used are `Unused`.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgespec {

constexpr int BACKEND_API = 2;
constexpr int TYPE_F32 = 0, TYPE_F16 = 1, TYPE_I8 = 24, TYPE_I32 = 26;
constexpr int DEVICE_CPU = 0, DEVICE_ACCELERATOR = 3;
constexpr int STATUS_OK = 0, STATUS_NO_MEMORY = -2;
constexpr int ALL_THREADS = -1;

using Unused = void (*)();

struct Buffer;

struct Tensor {
    int type;
    Buffer* buffer;
    int64_t ne[4];  // elements
    size_t nb[4];   // strides in bytes
    int op;
    int32_t op_params[16];
    int32_t flags;
    Tensor* src[10];
    Tensor* view_src;
    size_t view_offs;
    void* data;
    char name[64];
    void* extra;
    char padding[8];
};

// What a node of the kind CUSTOM keeps in its op_params.
struct CustomParams {
    void (*run)(Tensor* target, int thread, int threads, void* user_data);
    int threads;
    void* user_data;
};

struct Graph;
struct Context;
struct Device;
struct Registry;
struct BufferType;
struct Backend;

struct BufferTypeCalls {
    const char* (*get_name)(BufferType*);
    Buffer* (*alloc_buffer)(BufferType*, size_t size);
    size_t (*get_alignment)(BufferType*);
    size_t (*get_max_size)(BufferType*);
    size_t (*get_alloc_size)(BufferType*, const Tensor*);
    bool (*is_host)(BufferType*);
};

struct BufferType {
    BufferTypeCalls calls;
    Device* device;
    void* context;
};

struct BufferCalls {
    void (*free_buffer)(Buffer*);
    void* (*get_base)(Buffer*);
    int (*init_tensor)(Buffer*, Tensor*);
    void (*memset_tensor)(Buffer*, Tensor*, uint8_t value, size_t offset, size_t size);
    void (*set_tensor)(Buffer*, Tensor*, const void* data, size_t offset, size_t size);
    Unused get_tensor, set_tensor_2d, get_tensor_2d, cpy_tensor;
    void (*clear)(Buffer*, uint8_t value);
    Unused reset;
};

struct Buffer {
    BufferCalls calls;
    BufferType* type;
    void* context;
    size_t size;
    int usage;
};

struct BackendCalls {
    const char* (*get_name)(Backend*);
    void (*free)(Backend*);
    Unused set_tensor_async, get_tensor_async, set_tensor_2d_async, get_tensor_2d_async, cpy_tensor_async, synchronize;
    Unused graph_plan_create, graph_plan_free, graph_plan_update, graph_plan_compute;
    int (*graph_compute)(Backend*, Graph*);
    Unused event_record, event_wait, graph_optimize;
};

struct Backend {
    uint8_t* guid;  // 16 bytes
    BackendCalls calls;
    Device* device;
    void* context;
};

struct DeviceProperties {
    const char *name, *description;
    size_t memory_free, memory_total;
    int type;
    const char* device_id;
    bool async, host_buffer, buffer_from_host_ptr, events, mmap_support;
};

struct DeviceCalls {
    const char* (*get_name)(Device*);
    const char* (*get_description)(Device*);
    void (*get_memory)(Device*, size_t* free, size_t* total);
    int (*get_type)(Device*);
    void (*get_props)(Device*, DeviceProperties*);
    Backend* (*init_backend)(Device*, const char* parameters);
    BufferType* (*get_buffer_type)(Device*);
    Unused get_host_buffer_type, buffer_from_host_ptr;
    bool (*supports_op)(Device*, const Tensor*);
    bool (*supports_buft)(Device*, BufferType*);
    Unused offload_op, event_new, event_free, event_synchronize;
};

struct Device {
    DeviceCalls calls;
    Registry* registry;
    void* context;
};

struct RegistryCalls {
    const char* (*get_name)(Registry*);
    size_t (*get_device_count)(Registry*);
    Device* (*get_device)(Registry*, size_t index);
    void* (*get_proc_address)(Registry*, const char* name);
};

struct Registry {
    int api_version;
    RegistryCalls calls;
    void* context;
};

struct InitParams {
    size_t size;
    void* memory;
    bool no_alloc;
};

// ggml's functions, whose addresses the caller looks up: it knows which copy of the library runs the model.
struct Ggml {
    const char* (*ggml_op_name)(int op);
    const char* (*ggml_type_name)(int type);
    size_t (*ggml_tensor_overhead)();
    size_t (*ggml_nbytes)(const Tensor*);
    Context* (*ggml_init)(InitParams);
    void (*ggml_free)(Context*);
    Tensor* (*ggml_new_tensor_2d)(Context*, int type, int64_t ne0, int64_t ne1);
    Graph* (*ggml_new_graph_custom)(Context*, size_t size, bool grads);
    size_t (*ggml_graph_overhead_custom)(size_t size, bool grads);
    void (*ggml_graph_add_node)(Graph*, Tensor*);
    Tensor* (*ggml_graph_node)(Graph*, int index);
    int (*ggml_graph_n_nodes)(Graph*);
    Device* (*ggml_backend_dev_by_type)(int type);
    Registry* (*ggml_backend_dev_backend_reg)(Device*);
    Backend* (*ggml_backend_dev_init)(Device*, const char* parameters);
    bool (*ggml_backend_dev_supports_op)(Device*, const Tensor*);
    bool (*ggml_backend_dev_supports_buft)(Device*, BufferType*);
    BufferType* (*ggml_backend_dev_buffer_type)(Device*);
    void* (*ggml_backend_reg_get_proc_address)(Registry*, const char* name);
    int (*ggml_backend_graph_compute)(Backend*, Graph*);
    void (*ggml_backend_free)(Backend*);
    Buffer* (*ggml_backend_buffer_init)(BufferType*, BufferCalls, void* context, size_t size);
    void (*ggml_backend_register)(Registry*);
};

// The numbers that this ggml gives to operations, which change as operations are added.
struct Operations {
    int mul_mat, get_rows, attention, custom;
};

// Compare these declarations with the library. Returns what doesn't fit, or nullptr.
const char* check_abi(const Ggml& ggml, Operations* operations);

}  // namespace edgespec
