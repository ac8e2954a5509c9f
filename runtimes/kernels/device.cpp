#include "device.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "path.h"
#include "work.h"

namespace edgespec {

namespace {

Ggml ggml;
Operations operations;
const Path* path = nullptr;
thread_local bool in_use = false;

constexpr size_t ALIGNMENT = 64;  // of a matrix
constexpr size_t HUGE_PAGE = size_t(1) << 21;
constexpr size_t GRAPH_SLACK = 64;
const char NAME[] = "edgespec";

extern BufferType weights_type;
extern Device device, active_device, idle_device;
extern Registry registry;

// Tiles

bool holds_tiles(const Tensor* tensor) {
    return tensor != nullptr && tensor->buffer != nullptr && tensor->buffer->type == &weights_type;
}

// Views are left out: where they begin and end says nothing about tiles.
bool can_be_tiled(const Tensor& weights) {
    return weights.view_src == nullptr && is_known(weights.type) && weights.ne[2] == 1 && weights.ne[3] == 1 &&
           weights.ne[0] % format_of(Type(weights.type)).file_block == 0;
}

bool is_product(const Tensor& op) {
    return op.op == operations.mul_mat && can_be_tiled(*op.src[0]) && op.type == TYPE_F32 && op.nb[0] == 4 &&
           op.nb[1] == 4 * size_t(op.ne[0]) && op.src[1]->type == TYPE_F32 && op.src[1]->nb[0] == 4;
}

bool is_lookup(const Tensor& op) {
    return op.op == operations.get_rows && can_be_tiled(*op.src[0]) && op.type == TYPE_F32 && op.nb[0] == 4 &&
           op.src[1]->type == TYPE_I32 && op.src[1]->ne[2] == 1 && op.src[1]->ne[3] == 1;
}

// Buffers

const char* weights_name(BufferType*) { return NAME; }
size_t weights_alignment(BufferType*) { return ALIGNMENT; }

size_t weights_size(BufferType*, const Tensor* tensor) {
    if (!can_be_tiled(*tensor)) return ggml.ggml_nbytes(tensor);
    return matrix_bytes(Type(tensor->type), tensor->ne[0], tensor->ne[1], path->columns);
}

void free_memory(Buffer* buffer) { ::operator delete(buffer->context, std::align_val_t(HUGE_PAGE)); }
void* memory_of(Buffer* buffer) { return buffer->context; }

void fill(Buffer*, Tensor* tensor, uint8_t value, size_t offset, size_t size) {
    std::memset(static_cast<uint8_t*>(tensor->data) + offset, value, size);
}

void fill_all(Buffer* buffer, uint8_t value) { std::memset(buffer->context, value, buffer->size); }

void set_weights(Buffer*, Tensor* tensor, const void* data, size_t offset, size_t size) {
    if (!can_be_tiled(*tensor) || offset != 0 || size != ggml.ggml_nbytes(tensor)) {
        std::fprintf(stderr, "edgespec: weights can only be set as whole matrices\n");
        std::abort();
    }
    repack(Type(tensor->type), static_cast<const uint8_t*>(data), tensor->ne[0], tensor->ne[1], path->columns,
           static_cast<uint8_t*>(tensor->data));
}

Buffer* allocate(BufferType* type, size_t size) {
    void* memory = ::operator new(size + ALIGNMENT, std::align_val_t(HUGE_PAGE), std::nothrow);
    if (memory == nullptr) return nullptr;
#if defined(__linux__)
    madvise(memory, size, MADV_HUGEPAGE);  // fewer waits for the page table; what the system can't give is no error
#endif
    BufferCalls calls{};
    calls.free_buffer = free_memory;
    calls.get_base = memory_of;
    calls.memset_tensor = fill;
    calls.set_tensor = set_weights;
    calls.clear = fill_all;
    return ggml.ggml_backend_buffer_init(type, calls, memory, size);
}

// Graphs

// One run of a graph: the nodes that stand in for ggml's, and what they work on.
class Rewritten {
public:
    explicit Rewritten(std::vector<RowBlock>& rows) : rows_(rows) {}
    ~Rewritten() {
        if (context_ != nullptr) ggml.ggml_free(context_);
    }
    Rewritten(const Rewritten&) = delete;
    Rewritten& operator=(const Rewritten&) = delete;

    // The graph with our nodes; nullptr: no memory.
    Graph* make(Graph* graph) {
        const int count = ggml.ggml_graph_n_nodes(graph);
        const size_t most = size_t(count) * 2 + GRAPH_SLACK;
        context_ = ggml.ggml_init({ggml.ggml_graph_overhead_custom(most, false) + GRAPH_SLACK, nullptr, true});
        if (context_ == nullptr) return nullptr;
        reserve_rows(graph, count);
        Graph* made = ggml.ggml_new_graph_custom(context_, most, false);
        for (int i = 0; i < count; ++i) add(made, ggml.ggml_graph_node(graph, i));
        return made;
    }

private:
    void reserve_rows(Graph* graph, int count) {
        size_t most = 0;
        for (int i = 0; i < count; ++i) {
            const Tensor* node = ggml.ggml_graph_node(graph, i);
            if (node->op == operations.mul_mat && holds_tiles(node->src[0]))
                most = std::max(most, size_t(row_count(*node->src[1]) * (node->src[1]->ne[0] / BLOCK)));
        }
        if (rows_.size() < most) rows_.resize(most);
    }

    void add(Graph* made, Tensor* node) {
        if (node->op == operations.mul_mat && holds_tiles(node->src[0])) {
            if (node->src[1] != quantized_) {
                quantized_ = node->src[1];
                quantizations_.push_back({path->quantize, quantized_, rows_.data()});
                ggml.ggml_graph_add_node(made, custom(*node, Quantization::run, &quantizations_.back()));
            }
            Product& product = products_.emplace_back();
            const Tensor& weights = *node->src[0];
            const Type type = Type(weights.type);
            product.multiply = path->product(type);
            product.columns = path->columns;
            product.tile_size = tile_bytes(format_of(type), weights.ne[0], path->columns);
            product.tiles = static_cast<const uint8_t*>(weights.data);
            product.inputs = weights.ne[0];
            product.outputs = weights.ne[1];
            product.count = row_count(*node->src[1]);
            product.rows = rows_.data();
            product.target = static_cast<float*>(node->data);
            node = custom(*node, Product::run, &product);
        } else if (node->op == operations.get_rows && holds_tiles(node->src[0])) {
            lookups_.push_back({Type(node->src[0]->type), path->columns, node});
            node = custom(*node, Lookup::run, &lookups_.back());
        } else if (node->op == operations.attention && is_plain_attention(*node)) {
            Attending& attending = attentions_.emplace_back();
            attending.attend = path->attention;
            attending.node = node;
            node = custom(*node, Attending::run, &attending);
        }
        ggml.ggml_graph_add_node(made, node);
    }

    Tensor* custom(const Tensor& node, void (*run)(Tensor*, int, int, void*), void* work) {
        Tensor& made = nodes_.emplace_back(node);
        made.op = operations.custom;
        const CustomParams parameters = {run, ALL_THREADS, work};
        static_assert(sizeof parameters <= sizeof made.op_params, "ggml keeps them in the node");
        std::memcpy(made.op_params, &parameters, sizeof parameters);
        return &made;
    }

    std::vector<RowBlock>& rows_;
    Context* context_ = nullptr;
    const Tensor* quantized_ = nullptr;
    std::deque<Tensor> nodes_;  // deques: what is in them stays where it is
    std::deque<Quantization> quantizations_;
    std::deque<Product> products_;
    std::deque<Lookup> lookups_;
    std::deque<Attending> attentions_;
};

// Backends

struct State {
    Backend* cpu;
    std::vector<RowBlock> rows;
};

State& state_of(Backend* backend) { return *static_cast<State*>(backend->context); }

const char* backend_name(Backend*) { return NAME; }

void free_backend(Backend* backend) {
    ggml.ggml_backend_free(state_of(backend).cpu);
    delete &state_of(backend);
    delete backend;
}

int compute(Backend* backend, Graph* graph) {
    State& state = state_of(backend);
    try {
        Rewritten rewritten(state.rows);
        Graph* made = rewritten.make(graph);
        return made == nullptr ? STATUS_NO_MEMORY : ggml.ggml_backend_graph_compute(state.cpu, made);
    } catch (const std::bad_alloc&) {
        return STATUS_NO_MEMORY;
    }
}

Device* cpu_device() { return ggml.ggml_backend_dev_by_type(DEVICE_CPU); }

Backend* make_backend(Device*, const char*) {
    static uint8_t guid[16] = {0xed, 0x9e, 0x5b, 0xec, 0x11, 0x4a, 0x4d, 0x0c, 0x9a, 0x55, 0x21, 0x0f, 0x6e, 0x8a, 0x70, 0x01};
    Backend* cpu = ggml.ggml_backend_dev_init(cpu_device(), nullptr);
    if (cpu == nullptr) return nullptr;
    BackendCalls calls{};
    calls.get_name = backend_name;
    calls.free = free_backend;
    calls.graph_compute = compute;
    return new Backend{guid, calls, in_use ? &active_device : &idle_device, new State{cpu, {}}};
}

template <class Value>
void forward(Backend* backend, const char* name, Value value) {
    Backend* cpu = state_of(backend).cpu;
    Registry* owner = ggml.ggml_backend_dev_backend_reg(cpu->device);
    if (auto set = reinterpret_cast<void (*)(Backend*, Value)>(ggml.ggml_backend_reg_get_proc_address(owner, name)))
        set(cpu, value);
}

void set_threads(Backend* backend, int threads) { forward(backend, "ggml_backend_set_n_threads", threads); }

void set_abort(Backend* backend, bool (*callback)(void*), void* data) {
    Backend* cpu = state_of(backend).cpu;
    Registry* owner = ggml.ggml_backend_dev_backend_reg(cpu->device);
    using Set = void (*)(Backend*, bool (*)(void*), void*);
    if (auto set = reinterpret_cast<Set>(ggml.ggml_backend_reg_get_proc_address(owner, "ggml_backend_set_abort_callback")))
        set(cpu, callback, data);
}

// Devices. The registered one offers its own buffers, for weights. Backends belong to one that isn't registered and that
// offers ordinary memory, since a backend's results lie in what its device offers.

const char* device_name(Device*) { return NAME; }
const char* device_description(Device*) { return path->name; }
void device_memory(Device*, size_t* free, size_t* total) { *free = *total = 0; }
int device_type(Device*) { return DEVICE_ACCELERATOR; }

void device_properties(Device* which, DeviceProperties* properties) {
    *properties = {};
    properties->name = device_name(which);
    properties->description = device_description(which);
    properties->type = DEVICE_ACCELERATOR;
}

BufferType* offer_tiles(Device*) { return &weights_type; }
BufferType* offer_memory(Device*) { return ggml.ggml_backend_dev_buffer_type(cpu_device()); }

bool supports_tiles(const Tensor* op) { return holds_tiles(op->src[0]) && (is_product(*op) || is_lookup(*op)); }

bool touches_tiles(const Tensor* op) {
    for (const Tensor* source : op->src)
        if (holds_tiles(source)) return true;
    return false;
}

bool takes_weights(Device*, const Tensor* op) { return in_use && supports_tiles(op); }
bool takes_tiles_only(Device*, BufferType* type) { return type == &weights_type; }

bool computes(Device*, const Tensor* op) {
    return touches_tiles(op) ? supports_tiles(op) : ggml.ggml_backend_dev_supports_op(cpu_device(), op);
}
bool reads(Device*, BufferType* type) {
    return type == &weights_type || ggml.ggml_backend_dev_supports_buft(cpu_device(), type);
}

bool never(Device*, const Tensor*) { return false; }
bool reads_memory(Device*, BufferType* type) { return ggml.ggml_backend_dev_supports_buft(cpu_device(), type); }

const char* registry_name(Registry*) { return NAME; }
size_t registry_count(Registry*) { return 1; }
Device* registry_device(Registry*, size_t) { return &device; }

void* registry_call(Registry*, const char* name) {
    if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) return reinterpret_cast<void*>(set_threads);
    if (std::strcmp(name, "ggml_backend_set_abort_callback") == 0) return reinterpret_cast<void*>(set_abort);
    return nullptr;
}

DeviceCalls device_calls(BufferType* (*offer)(Device*), bool (*op)(Device*, const Tensor*), bool (*type)(Device*, BufferType*)) {
    DeviceCalls calls{};
    calls.get_name = device_name;
    calls.get_description = device_description;
    calls.get_memory = device_memory;
    calls.get_type = device_type;
    calls.get_props = device_properties;
    calls.init_backend = make_backend;
    calls.get_buffer_type = offer;
    calls.supports_op = op;
    calls.supports_buft = type;
    return calls;
}

Registry registry = {BACKEND_API, {registry_name, registry_count, registry_device, registry_call}, nullptr};
Device device = {device_calls(offer_tiles, takes_weights, takes_tiles_only), &registry, nullptr};
Device active_device = {device_calls(offer_memory, computes, reads), &registry, nullptr};
Device idle_device = {device_calls(offer_memory, never, reads_memory), &registry, nullptr};
BufferType weights_type = {
    {weights_name, allocate, weights_alignment, nullptr, weights_size, nullptr}, &device, nullptr};

}  // namespace

}  // namespace edgespec

using namespace edgespec;

const char* edgespec_register(const Ggml* calls, const char* name) {
    if (path != nullptr) return nullptr;
    const Path* chosen = choose_path(name);
    if (chosen == nullptr) return "this processor hasn't the instructions";
    if (const char* problem = check_abi(*calls, &operations)) return problem;
    ggml = *calls;
    path = chosen;
    ggml.ggml_backend_register(&registry);
    return nullptr;
}

void edgespec_use(int on) { in_use = on != 0; }
