/* Attention with cuDNN. A call is an operation graph that cuDNN recognizes as attention and runs as one or
 * two kernels; intermediate ("virtual") tensors are never materialized. A graph is built once per shape and
 * cached with the device; if cuDNN does not support the shape, the reason is cached instead. Backward uses
 * only deterministic engines. These store a matrix of all scores, so for long sequences they are used only on
 * request.
 *
 * The builder keeps the first error and ignores later calls, so that a graph reads like the formula. cuDNN
 * expects tensors of dims (B,H,T,D); their strides describe the actual layout.
 */
#include <cudnn.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kernels/cuda/cuda.h"

typedef cudnnBackendDescriptor_t Desc;

typedef struct Library {
    __typeof__(cudnnGetVersion) *version;
    __typeof__(cudnnGetErrorString) *error_string;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnDestroy) *destroy;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnBackendCreateDescriptor) *desc_new;
    __typeof__(cudnnBackendDestroyDescriptor) *desc_free;
    __typeof__(cudnnBackendSetAttribute) *set;
    __typeof__(cudnnBackendGetAttribute) *get;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendExecute) *execute;
} Library;

static const char *const function_names[] = {
    "cudnnGetVersion",
    "cudnnGetErrorString",
    "cudnnCreate",
    "cudnnDestroy",
    "cudnnSetStream",
    "cudnnBackendCreateDescriptor",
    "cudnnBackendDestroyDescriptor",
    "cudnnBackendSetAttribute",
    "cudnnBackendGetAttribute",
    "cudnnBackendFinalize",
    "cudnnBackendExecute",
};
_Static_assert(sizeof(Library) == sizeof function_names, "a name for each function");

enum {
    MOST_DESCS = 256,
    MOST_OPS = 40,
    MOST_CONFIGS = 24,
    MOST_DATA = 20,
    WIDEST = 128,
    SCRATCH = 1 << 30, /* maximum workspace of a plan in bytes, unless cuDNN is requested explicitly */
    OLDEST = 91000,
    ALL_LENGTHS = 91600, /* earlier versions require multiples of 128: backward has a bug */
    LENGTHS = 128,
};

typedef struct Key {
    DType type;
    int B, H, T, D;
    bool causal, padded, backward;
    bool any_scratch; /* no limit: backward's engines need up to two bytes per score */
} Key;

typedef struct CudnnPlan {
    struct CudnnPlan *next;
    Key key;
    char problem[160]; /* not empty: why cuDNN does not support this shape */
    Desc descs[MOST_DESCS];
    int desc_count;
    Desc plan;
    int64_t workspace;
} CudnnPlan;

typedef struct Cudnn {
    Library lib;
    cudnnHandle_t handle;
    char problem[160]; /* not empty: why cuDNN cannot be used, for example because it is too old */
    CudnnPlan *plans;
    size_t version;
} Cudnn;

/* ---- the builder ---- */

/* Unique ids of the graph's tensors. Ids from ID_NEXT on are virtual tensors. */
typedef enum {
    ID_Q = 1,
    ID_K,
    ID_V,
    ID_OUT,
    ID_LSE,
    ID_DOUT,
    ID_DQ,
    ID_DK,
    ID_DV,
    ID_DELTA,
    ID_LENGTHS_Q,
    ID_LENGTHS_K,
    ID_SCALE,
    ID_MASKED,
    ID_ONE,
    ID_NEXT = 100
} Id;

typedef struct Graph {
    const Library *lib;
    CudnnPlan *plan;
    cudnnStatus_t error;
    const char *where;
    const char *refused; /* why an engine was rejected */
    int64_t next;
    Desc ops[MOST_OPS];
    int64_t op_count;
    cudnnDataType_t type; /* of q, k, v, out and their gradients */
    Desc lengths_q, lengths_k, scale, masked;
} Graph;

static void check(Graph *g, cudnnStatus_t status, const char *where) {
    if (g->error != CUDNN_STATUS_SUCCESS || status == CUDNN_STATUS_SUCCESS) return;
    g->error = status;
    g->where = where;
}

static Desc desc_new(Graph *g, cudnnBackendDescriptorType_t type) {
    Desc desc = NULL;
    if (g->error != CUDNN_STATUS_SUCCESS) return NULL;
    if (g->plan->desc_count == MOST_DESCS) {
        check(g, CUDNN_STATUS_NOT_SUPPORTED, "too many descriptors");
        return NULL;
    }
    check(g, g->lib->desc_new(type, &desc), "making a descriptor");
    if (g->error == CUDNN_STATUS_SUCCESS) g->plan->descs[g->plan->desc_count++] = desc;
    return desc;
}

static void set(Graph *g, Desc desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *values) {
    if (g->error != CUDNN_STATUS_SUCCESS) return;
    check(g, g->lib->set(desc, name, type, count, values), "setting an attribute");
}

static void set_desc(Graph *g, Desc desc, cudnnBackendAttributeName_t name, Desc value) {
    if (value) set(g, desc, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(Graph *g, Desc desc, const char *where) {
    if (g->error == CUDNN_STATUS_SUCCESS) check(g, g->lib->finalize(desc), where);
}

static void add_op(Graph *g, Desc op) {
    finalize(g, op, "an operation");
    if (g->op_count == MOST_OPS) check(g, CUDNN_STATUS_NOT_SUPPORTED, "too many operations");
    if (g->error == CUDNN_STATUS_SUCCESS) g->ops[g->op_count++] = op;
}

static Desc tensor_of(Graph *g, int64_t id, cudnnDataType_t type, const int64_t *dim, const int64_t *stride,
                      bool by_value) {
    int64_t alignment = 16;
    bool is_virtual = id >= ID_NEXT;
    Desc desc = desc_new(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(g, desc, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(g, desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(g, desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_virtual) set(g, desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value) set(g, desc, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(g, desc, "a tensor");
    return desc;
}

/* (B,H,T,D) with the strides of `heads`; `turned`: transposed to (B,H,D,T). */
static Desc heads_of(Graph *g, int64_t id, const CudaAttention *call, const CudaHeads *heads, bool turned) {
    int64_t dim[] = {call->B, call->H, call->queries, call->D};
    int64_t stride[] = {heads->batch, heads->head, heads->row, 1};
    int64_t dim_turned[] = {dim[0], dim[1], dim[3], dim[2]};
    int64_t stride_turned[] = {stride[0], stride[1], stride[3], stride[2]};
    return tensor_of(g, id, g->type, turned ? dim_turned : dim, turned ? stride_turned : stride, false);
}

/* A virtual (B,H,T,T) tensor; `turned`: with its last two dims transposed. */
static Desc scores_of(Graph *g, cudnnDataType_t type, bool turned) {
    int64_t H = g->plan->key.H, T = g->plan->key.T, dim[] = {g->plan->key.B, H, T, T};
    int64_t stride[] = {H * T * T, T * T, turned ? 1 : T, turned ? T : 1};
    return tensor_of(g, g->next++, type, dim, stride, false);
}

/* (B,H,T,1), fp32 */
static Desc rows_of(Graph *g, int64_t id) {
    int64_t H = g->plan->key.H, T = g->plan->key.T, dim[] = {g->plan->key.B, H, T, 1};
    int64_t stride[] = {H * T, T, 1, 1};
    return tensor_of(g, id, CUDNN_DATA_FLOAT, dim, stride, false);
}

/* (B,1,1,1) */
static Desc lengths_of(Graph *g, int64_t id) {
    int64_t dim[] = {g->plan->key.B, 1, 1, 1}, stride[] = {1, 1, 1, 1};
    return tensor_of(g, id, CUDNN_DATA_INT32, dim, stride, false);
}

static Desc number_of(Graph *g, int64_t id) {
    int64_t one[] = {1, 1, 1, 1};
    return tensor_of(g, id, CUDNN_DATA_FLOAT, one, one, true);
}

/* c = a b. `rows`, `cols` and `inner` are per-sequence limits on M, N and K; NULL: no limit. */
static void matmul(Graph *g, Desc c, Desc a, Desc b, Desc rows, Desc cols, Desc inner) {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    Desc desc = desc_new(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, desc, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize(g, desc, "a matmul");
    Desc op = desc_new(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, desc);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, rows);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, cols);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, inner);
    add_op(g, op);
}

/* y = mode(x, b, t), computed in `type`; b, t and the axis are used only by modes that need them. */
static Desc pointwise_as(Graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type, int64_t axis, Desc y,
                         Desc x, Desc b, Desc t) {
    float one = 1;
    Desc desc = desc_new(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, desc, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, desc, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, desc, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, desc, "an elementwise operation");
    Desc op = desc_new(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, desc);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one);
    set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one);
    add_op(g, op);
    return y;
}

static Desc pointwise(Graph *g, cudnnPointwiseMode_t mode, Desc y, Desc x, Desc b) {
    return pointwise_as(g, mode, CUDNN_DATA_FLOAT, 0, y, x, b, NULL);
}

static Desc scores(Graph *g) {
    return scores_of(g, CUDNN_DATA_FLOAT, false);
}

static Desc reduce(Graph *g, cudnnReduceTensorOp_t mode, Desc y, Desc x) {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    Desc desc = desc_new(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, desc, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(g, desc, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalize(g, desc, "a reduction");
    Desc op = desc_new(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, desc);
    add_op(g, op);
    return y;
}

static Desc reshape(Graph *g, Desc y, Desc x) {
    Desc op = desc_new(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add_op(g, op);
    return y;
}

/* ---- attention as a graph ---- */

enum { AXIS_QUERY = 2, AXIS_KEY = 3 };

static Desc indices(Graph *g, Desc x, int64_t axis, cudnnDataType_t type) {
    return pointwise_as(g, CUDNN_POINTWISE_GEN_INDEX, type, axis, scores_of(g, CUDNN_DATA_INT32, false), x,
                        NULL, NULL);
}

static Desc truth(Graph *g, cudnnPointwiseMode_t mode, Desc x, Desc b) {
    return pointwise_as(g, mode, CUDNN_DATA_BOOLEAN, 0, scores_of(g, CUDNN_DATA_BOOLEAN, false), x, b, NULL);
}

static Desc where_true(Graph *g, Desc x, Desc mask) {
    return pointwise_as(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, scores(g), x, g->masked, mask);
}

/* Sets scores at or past the end of their sequence to -infinity. */
static Desc mask_padding(Graph *g, Desc x) {
    if (!g->plan->key.padded) return x;
    Desc query = indices(g, x, AXIS_QUERY, CUDNN_DATA_INT32), key = indices(g, x, AXIS_KEY, CUDNN_DATA_INT32);
    Desc real_query = truth(g, CUDNN_POINTWISE_CMP_LT, query, g->lengths_q);
    Desc real_key = truth(g, CUDNN_POINTWISE_CMP_LT, key, g->lengths_k);
    return where_true(g, x, truth(g, CUDNN_POINTWISE_LOGICAL_AND, real_query, real_key));
}

static Desc mask_causal(Graph *g, Desc x) {
    if (!g->plan->key.causal) return x;
    Desc query = indices(g, x, AXIS_QUERY, CUDNN_DATA_FLOAT), key = indices(g, x, AXIS_KEY, CUDNN_DATA_FLOAT);
    return where_true(g, x, truth(g, CUDNN_POINTWISE_CMP_GE, query, key));
}

static void shared_tensors(Graph *g) {
    if (g->plan->key.padded) {
        g->lengths_q = lengths_of(g, ID_LENGTHS_Q);
        g->lengths_k = lengths_of(g, ID_LENGTHS_K);
    }
    g->scale = number_of(g, ID_SCALE);
    if (g->plan->key.padded || g->plan->key.causal) g->masked = number_of(g, ID_MASKED);
}

/* out = softmax(scale q k^T) v;  lse = max + log sum exp */
static void build_forward(Graph *g, const CudaAttention *call) {
    shared_tensors(g);
    Desc q = heads_of(g, ID_Q, call, &call->q, false), k = heads_of(g, ID_K, call, &call->k, true);
    Desc v = heads_of(g, ID_V, call, &call->v, false), out = heads_of(g, ID_OUT, call, &call->out, false);
    Desc dot = scores(g);
    matmul(g, dot, q, k, g->lengths_q, g->lengths_k, NULL);
    Desc score = pointwise(g, CUDNN_POINTWISE_MUL, scores(g), dot, g->scale);
    score = mask_causal(g, mask_padding(g, score));
    Desc most = reduce(g, CUDNN_REDUCE_TENSOR_MAX, rows_of(g, g->next++), score);
    Desc below = pointwise(g, CUDNN_POINTWISE_SUB, scores(g), score, most);
    Desc power = pointwise(g, CUDNN_POINTWISE_EXP, scores(g), below, NULL);
    Desc total = reduce(g, CUDNN_REDUCE_TENSOR_ADD, rows_of(g, g->next++), power);
    Desc log_total = pointwise(g, CUDNN_POINTWISE_LOG, rows_of(g, g->next++), total, NULL);
    pointwise(g, CUDNN_POINTWISE_ADD, rows_of(g, ID_LSE), most, log_total);
    Desc weight = pointwise(g, CUDNN_POINTWISE_DIV, scores_of(g, g->type, false), power, total);
    matmul(g, out, weight, v, g->lengths_q, NULL, g->lengths_k);
}

/* The row sums of dout * out, shared by both matmul chains, are not virtual: cuDNN computes them first. */
static Desc build_delta(Graph *g, const CudaAttention *call, Desc dout) {
    int64_t H = call->H, T = call->queries, D = call->D;
    int64_t dim[] = {call->B, H, T, D}, stride[] = {H * T * D, T * D, H * D, 1};
    Desc out = heads_of(g, ID_OUT, call, &call->out, false);
    Desc product = tensor_of(g, g->next++, CUDNN_DATA_FLOAT, dim, stride, false);
    pointwise(g, CUDNN_POINTWISE_MUL, product, dout, out);
    Desc sums = reduce(g, CUDNN_REDUCE_TENSOR_ADD, rows_of(g, g->next++), product);
    return pointwise(g, CUDNN_POINTWISE_MUL, rows_of(g, ID_DELTA), sums, number_of(g, ID_ONE));
}

/* P = exp(scale q k^T - lse);  dv = P^T dout;  dS = P (dout v^T - delta) scale;  dk = dS^T q;  dq = dS k */
static void build_backward(Graph *g, const CudaAttention *call) {
    shared_tensors(g);
    Desc q = heads_of(g, ID_Q, call, &call->q, false), k = heads_of(g, ID_K, call, &call->k, true);
    Desc v = heads_of(g, ID_V, call, &call->v, true), dout = heads_of(g, ID_DOUT, call, &call->dout, false);
    Desc dq = heads_of(g, ID_DQ, call, &call->dq, false), dk = heads_of(g, ID_DK, call, &call->dk, false);
    Desc dv = heads_of(g, ID_DV, call, &call->dv, false);
    Desc delta = build_delta(g, call, dout);
    Desc dot = scores(g);
    matmul(g, dot, q, k, g->lengths_q, g->lengths_k, NULL);
    Desc score = mask_padding(g, pointwise(g, CUDNN_POINTWISE_MUL, scores(g), dot, g->scale));
    score = pointwise(g, CUDNN_POINTWISE_SUB, scores(g), score, rows_of(g, ID_LSE));
    Desc weight = pointwise(g, CUDNN_POINTWISE_EXP, scores(g), mask_causal(g, score), NULL);
    matmul(g, dv, reshape(g, scores_of(g, g->type, true), weight), dout, g->lengths_k, NULL, g->lengths_q);
    Desc through = scores(g);
    matmul(g, through, dout, v, g->lengths_q, g->lengths_k, NULL);
    Desc ds = pointwise(g, CUDNN_POINTWISE_SUB, scores(g), through, delta);
    ds = pointwise(g, CUDNN_POINTWISE_MUL, scores(g), ds, weight);
    ds = pointwise(g, CUDNN_POINTWISE_MUL, scores(g), ds, g->scale);
    matmul(g, dk, reshape(g, scores_of(g, g->type, true), ds), q, g->lengths_k, NULL, g->lengths_q);
    matmul(g, dq, ds, reshape(g, heads_of(g, g->next++, call, &call->k, false), k), g->lengths_q, NULL,
           g->lengths_k);
}

/* ---- plans ---- */

/* Whether the engine of a configuration is nondeterministic. */
static bool may_differ(Graph *g, Desc config) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    Desc engine = desc_new(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (g->error != CUDNN_STATUS_SUCCESS) return true;
    if (g->lib->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine))
        return true;
    if (g->lib->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                    CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes))
        return true;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return true;
    return false;
}

/* Tries to create a plan from one configuration; an unsupported one is not an error. */
static bool plan_from(Graph *g, cudnnHandle_t handle, Desc config) {
    int64_t bytes = 0, count = 0;
    Desc desc = desc_new(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (g->error != CUDNN_STATUS_SUCCESS) return false;
    if (g->lib->set(desc, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) ||
        g->lib->set(desc, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &config) ||
        g->lib->finalize(desc) ||
        g->lib->get(desc, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes))
        return false;
    if (!g->plan->key.any_scratch && bytes > SCRATCH) {
        g->refused = "supported engines need too much workspace";
        return false;
    }
    g->plan->plan = desc;
    g->plan->workspace = bytes;
    return true;
}

static void choose_engine(Graph *g, cudnnHandle_t handle) {
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    Desc graph = desc_new(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), configs[MOST_CONFIGS] = {0};
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->op_count, g->ops);
    finalize(g, graph, "the graph");
    Desc heuristics = desc_new(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_desc(g, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(g, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(g, heuristics, "engine heuristics");
    for (int i = 0; i < MOST_CONFIGS; i++) configs[i] = desc_new(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->error != CUDNN_STATUS_SUCCESS) return;
    int64_t count = 0;
    check(g,
          g->lib->get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CONFIGS,
                      &count, configs),
          "engine heuristics");
    if (count > MOST_CONFIGS) count = MOST_CONFIGS;
    for (int64_t i = 0; i < count && g->error == CUDNN_STATUS_SUCCESS; i++)
        if (g->plan->key.backward && may_differ(g, configs[i]))
            g->refused = "supported engines are nondeterministic";
        else if (plan_from(g, handle, configs[i]))
            return;
    check(g, CUDNN_STATUS_NOT_SUPPORTED, g->refused ? g->refused : "no engine supports this graph");
}

static void plan_done(const Library *lib, CudnnPlan *plan) {
    while (plan->desc_count > 0) lib->desc_free(plan->descs[--plan->desc_count]);
}

static void plan_build(Cudnn *cudnn, CudnnPlan *plan, const CudaAttention *call) {
    Graph g = {.lib = &cudnn->lib,
               .plan = plan,
               .next = ID_NEXT,
               .type = plan->key.type == DT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF};
    if (plan->key.backward)
        build_backward(&g, call);
    else
        build_forward(&g, call);
    choose_engine(&g, cudnn->handle);
    if (g.error == CUDNN_STATUS_SUCCESS) return;
    snprintf(plan->problem, sizeof plan->problem, "cuDNN: %s (%s)", cudnn->lib.error_string(g.error),
             g.where);
    plan_done(&cudnn->lib, plan);
}

static bool keys_equal(const Key *a, const Key *b) {
    return a->type == b->type && a->B == b->B && a->H == b->H && a->T == b->T && a->D == b->D &&
           a->causal == b->causal && a->padded == b->padded && a->backward == b->backward &&
           a->any_scratch == b->any_scratch;
}

static Status plan_find(Cudnn *cudnn, const Key *key, const CudaAttention *call, CudnnPlan **ret_plan) {
    CudnnPlan *plan = cudnn->plans;
    while (plan && !keys_equal(&plan->key, key)) plan = plan->next;
    if (!plan) {
        TRY(mem_new(1, sizeof *plan, &plan));
        plan->key = *key;
        plan_build(cudnn, plan, call);
        plan->next = cudnn->plans;
        cudnn->plans = plan;
    }
    *ret_plan = plan;
    return OK;
}

/* ---- running ---- */

static void cudnn_open(Cudnn *cudnn) {
    static const char *const names[] = {"libcudnn.so.9", NULL};
    void *library = NULL;
    Status status = library_open(&library, names, "attention by cuDNN");
    if (!status)
        status = library_bind(library, function_names, sizeof function_names / sizeof *function_names,
                              &cudnn->lib);
    if (status) {
        snprintf(cudnn->problem, sizeof cudnn->problem, "%s", status_message(status));
        status_free(status);
        return;
    }
    cudnn->version = cudnn->lib.version();
    if (cudnn->version < OLDEST) {
        snprintf(cudnn->problem, sizeof cudnn->problem,
                 "cuDNN version %zu is too old; %d or newer is required", cudnn->version, OLDEST);
        return;
    }
    cudnnStatus_t made = cudnn->lib.create(&cudnn->handle);
    if (made != CUDNN_STATUS_SUCCESS)
        snprintf(cudnn->problem, sizeof cudnn->problem, "cuDNN: %s", cudnn->lib.error_string(made));
}

void attention_cudnn_free(void *kept) {
    Cudnn *cudnn = kept;
    if (!cudnn) return;
    while (cudnn->plans) {
        CudnnPlan *plan = cudnn->plans;
        cudnn->plans = plan->next;
        plan_done(&cudnn->lib, plan);
        free(plan);
    }
    if (cudnn->handle) cudnn->lib.destroy(cudnn->handle);
    free(cudnn);
}

static bool aligned(const CudaHeads *heads) {
    return (uintptr_t)heads->data % 16 == 0;
}

/* Why cuDNN cannot support the call; NULL if it might. */
static const char *refusal(DType type, const CudaAttention *call, bool backward) {
    if (type != DT_BF16 && type != DT_F16) return "only 16-bit types are supported";
    if (call->dropout.threshold) return "dropout needs weft's random numbers";
    if (call->D % 8 || call->D > WIDEST) return "the head size must be a multiple of 8 and at most 128";
    bool fits = aligned(&call->q) && aligned(&call->k) && aligned(&call->v) && aligned(&call->out);
    if (backward)
        fits = fits && aligned(&call->dout) && aligned(&call->dq) && aligned(&call->dk) && aligned(&call->dv);
    return fits ? NULL : "rows must be 16-byte aligned";
}

typedef struct Data {
    int64_t ids[MOST_DATA];
    void *at[MOST_DATA];
    int64_t count;
} Data;

static void data_add(Data *data, int64_t id, void *at) {
    data->ids[data->count] = id;
    data->at[data->count++] = at;
}

/* The data pointers of the graph's tensors; cuDNN rejects tensors that are not in the graph. */
static void data_fill(Data *data, const CudnnPlan *plan, const CudaAttention *call, int32_t *lengths,
                      float *numbers) {
    data_add(data, ID_Q, call->q.data);
    data_add(data, ID_K, call->k.data);
    data_add(data, ID_V, call->v.data);
    data_add(data, ID_OUT, call->out.data);
    data_add(data, ID_LSE, call->lse);
    data_add(data, ID_SCALE, &numbers[0]);
    if (plan->key.causal || plan->key.padded) data_add(data, ID_MASKED, &numbers[1]);
    if (plan->key.padded) {
        data_add(data, ID_LENGTHS_Q, lengths);
        data_add(data, ID_LENGTHS_K, lengths + call->B);
    }
    if (!plan->key.backward) return;
    data_add(data, ID_DOUT, call->dout.data);
    data_add(data, ID_DQ, call->dq.data);
    data_add(data, ID_DK, call->dk.data);
    data_add(data, ID_DV, call->dv.data);
    data_add(data, ID_DELTA, call->delta);
    data_add(data, ID_ONE, &numbers[2]);
}

static cudnnStatus_t execute(const Cudnn *cudnn, const CudnnPlan *plan, Data *data, void *workspace,
                             cudaStream_t stream) {
    const Library *lib = &cudnn->lib;
    Desc pack = NULL;
    cudnnStatus_t status = lib->set_stream(cudnn->handle, stream);
    if (status) return status;
    status = lib->desc_new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status) return status;
    status = lib->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, data->count, data->ids);
    if (!status)
        status =
            lib->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data->count, data->at);
    if (!status)
        status = lib->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (!status) status = lib->finalize(pack);
    if (!status) status = lib->execute(cudnn->handle, plan->plan, pack);
    lib->desc_free(pack);
    return status;
}

/* Scratch: cuDNN's workspace, then delta (B,H,T), then the lengths of queries and of keys, (B) each. */
static Status plan_run(Cudnn *cudnn, CudnnPlan *plan, Stream *stream, const CudaAttention *given) {
    CudaAttention call = *given;
    size_t own = ((size_t)plan->workspace + 255) / 256 * 256;
    size_t rows = (size_t)call.B * (size_t)call.H * (size_t)call.queries * sizeof(float);
    rows = plan->key.backward ? (rows + 255) / 256 * 256 : 0;
    void *workspace = NULL;
    TRY(stream_workspace(stream, own + rows + 2 * (size_t)call.B * sizeof(int32_t), &workspace));
    int32_t *lengths = (int32_t *)((char *)workspace + own + rows);
    call.delta = (float *)((char *)workspace + own);
    if (plan->key.padded) LAUNCH(launch_attention_lengths(cuda_stream(stream), &call, lengths));
    Data data = {.count = 0};
    float numbers[] = {call.scale, -INFINITY, 1};
    data_fill(&data, plan, &call, lengths, numbers);
    cudnnStatus_t status = execute(cudnn, plan, &data, workspace, cuda_stream(stream));
    if (status) {
        snprintf(plan->problem, sizeof plan->problem, "cuDNN: %s (execution)",
                 cudnn->lib.error_string(status));
        return OK;
    }
    if (plan->key.padded)
        LAUNCH(launch_attention_blank(cuda_stream(stream), plan->key.type, &call, plan->key.backward));
    return OK;
}

Status attention_cudnn(Stream *stream, void **kept, DType type, const CudaAttention *call, bool backward,
                       bool forced, const char **ret_problem) {
    const char *problem = refusal(type, call, backward);
    if (problem) {
        *ret_problem = problem;
        return OK;
    }
    if (!*kept) {
        CUDA_TRY(cudaSetDevice(cuda_device(stream)->index));
        TRY(mem_new(1, sizeof(Cudnn), kept));
        cudnn_open(*kept);
    }
    Cudnn *cudnn = *kept;
    if (cudnn->problem[0]) {
        *ret_problem = cudnn->problem;
        return OK;
    }
    if (cudnn->version < ALL_LENGTHS && (call->lens || call->queries % LENGTHS)) {
        *ret_problem = "this cuDNN version requires lengths that are multiples of 128";
        return OK;
    }
    Key key = {.type = type,
               .B = call->B,
               .H = call->H,
               .T = call->queries,
               .D = call->D,
               .causal = call->causal,
               .padded = call->lens != NULL,
               .backward = backward,
               .any_scratch = forced};
    CudnnPlan *plan = NULL;
    TRY(plan_find(cudnn, &key, call, &plan));
    if (!plan->problem[0]) TRY(plan_run(cudnn, plan, stream, call));
    *ret_problem = plan->problem[0] ? plan->problem : NULL;
    return OK;
}
