/* Chooses the attention kernels, see cuda.h. cuDNN cannot draw dropout masks that depend on global indices,
 * and short sequences are not worth a plan of it. WEFT_CUDA_ATTENTION overrides the choice: "own" selects the
 * portable kernels; "cudnn" rules out the Hopper kernels and fails where cuDNN does not support a call
 * without dropout; "hopper" fails if the Hopper kernels are not part of the build or do not run on the
 * device. Decoding uses neither. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/cuda/attention_cluster.h"
#include "kernels/cuda/cuda.h"

enum { WIDEST = 256 };

/* q of a qkv or dqkv (B,T,H+2G,D); k or v of one, or of a kv or dkv (B,K,M,D). */
static CudaHeads heads_of(Tensor rows, const QkvShape *s, int part) {
    int64_t head = qkv_head(s, part, 0), heads = part == PART_Q ? s->N : s->M;
    return (CudaHeads){.data = (char *)rows.data + (size_t)(head * s->D) * dtype_size(rows.dtype),
                       .batch = rows.dim[1] * heads * s->D,
                       .head = s->D,
                       .row = heads * s->D};
}

/* Without a turn, it is after the last of `rows` rows. */
static CudaPlaces places_of(Positions at, int64_t rows) {
    int64_t turn = at.turn ? at.turn : rows;
    return (CudaPlaces){(int)at.first, (int)turn, (int)(at.turn ? at.second : at.first + turn)};
}

/* out or dout (B,T,H,D) */
static CudaHeads outputs_of(Tensor out) {
    int64_t T = out.dim[1], H = out.dim[2], D = out.dim[3];
    return (CudaHeads){.data = out.data, .batch = T * H * D, .head = D, .row = H * D};
}

/* (B,G,S,D) */
static CudaHeads cache_of(Tensor cache) {
    int64_t G = cache.dim[1], S = cache.dim[2], D = cache.dim[3];
    return (CudaHeads){.data = cache.data, .batch = G * S * D, .head = S * D, .row = D};
}

/* Block indices have 31 bits; the smallest tile has 16 rows of a head, or one row of all heads. */
static Status call_init(CudaAttention *call, const char *kernel, Tensor out, Tensor qkv, int64_t keys,
                        const Attention *spec) {
    QkvShape s = qkv_shape(qkv, spec);
    int64_t B = s.B, T = s.T, H = s.H, D = s.D;
    int64_t positions = positions_of(&s, spec), longest = positions > keys ? positions : keys;
    Tensor kv = spec->kv.data ? spec->kv : qkv;
    if (out.dtype != qkv.dtype)
        return FAILED("internal: %s: out is %s; expected %s on a GPU", kernel, dtype_name(out.dtype),
                      dtype_name(qkv.dtype));
    int widest = T > 1 && cuda_limits().shared_memory < 100 << 10 ? 160 : WIDEST;
    if (D > widest)
        return FAILED("%s: the head size is %lld; expected at most %d", kernel, (long long)D, widest);
    if (longest > INT_MAX / 2 || (double)(B * H) * (double)(longest / 16 + 1) > INT_MAX || B * T > INT_MAX)
        return FAILED("%s: %lld sequences of %lld positions with %lld heads are too many for one call",
                      kernel, (long long)B, (long long)longest, (long long)H);
    *call = (CudaAttention){.B = (int)B,
                            .H = (int)H,
                            .queries = (int)T,
                            .keys = (int)keys,
                            .D = (int)D,
                            .group = (int)s.group,
                            .window = (int)(spec->window < longest ? spec->window : 0),
                            .positions = (int)(spec->starts.data ? tensor_count(spec->starts) / B : 0),
                            .parts = spec->kv.data,
                            .aligned = keeps_tiles(&spec->queries, T) && keeps_tiles(&spec->keys, s.keys),
                            .query_at = places_of(spec->queries, T),
                            .key_at = places_of(spec->keys, s.keys),
                            .q = heads_of(qkv, &s, PART_Q),
                            .k = heads_of(kv, &s, PART_K),
                            .v = heads_of(kv, &s, PART_V),
                            .out = outputs_of(out),
                            .scale = spec->scale};
    return OK;
}

/* Per-device state. */
typedef struct Kept {
    void *cudnn;
    bool hopper; /* the Hopper kernels run on this device */
} Kept;

static void kept_free(void *attention) {
    Kept *kept = attention;
    attention_cudnn_free(kept->cudnn);
    free(kept);
}

static Status kept_find(Stream *stream, Kept **ret_kept) {
    CudaKernels *kernels = NULL;
    TRY(cuda_kernels(stream, &kernels));
    if (!kernels->attention) {
        TRY(mem_new(1, sizeof(Kept), &kernels->attention));
        kernels->attention_free = kept_free;
        ((Kept *)kernels->attention)->hopper = attention_hopper_runs();
    }
    *ret_kept = kernels->attention;
    return OK;
}

typedef enum { BY_PORTABLE, BY_HOPPER, BY_CUDNN } Choice;

static bool equals(const char *text, const char *other) {
    return text && strcmp(text, other) == 0;
}

/* Chooses the kernels for a call. BY_CUDNN: cuDNN has already run it. */
static Status choose(Stream *stream, DType type, const CudaAttention *call, bool backward,
                     Choice *ret_choice) {
    const char *wanted = getenv("WEFT_CUDA_ATTENTION"), *problem = NULL;
    bool own = equals(wanted, "own"), cudnn = equals(wanted, "cudnn");
    if (wanted && *wanted && !own && !cudnn && !equals(wanted, "hopper"))
        return USAGE("WEFT_CUDA_ATTENTION is \"%s\"; expected own, cudnn or hopper", wanted);
    Kept *kept = NULL;
    TRY(kept_find(stream, &kept));
    if (equals(wanted, "hopper") && !kept->hopper)
        return USAGE("WEFT_CUDA_ATTENTION is hopper, but this build has no Hopper kernels for this GPU; they "
                     "need compute capability 9.0 and a build for sm_90a");
    bool special = call->group > 1 || call->window || call->starts || call->parts;
    bool hopper = kept->hopper && !own && !cudnn && call->queries >= SHORTEST_HOPPER &&
                  attention_hopper_supports(type, call);
    if (own)
        problem = "requested by WEFT_CUDA_ATTENTION";
    else if (hopper)
        problem = "Hopper kernels";
    else if (cuda_limits().capability < 80)
        problem = "a GPU before compute capability 8.0";
    else if (special)
        problem = "shared key heads, a window, documents or keys of other ranks";
    else if (!cudnn && call->queries < SHORTEST_CUDNN)
        problem = "short sequences";
    else
        TRY(attention_cudnn(stream, &kept->cudnn, type, call, backward, cudnn, &problem));
    if (problem && cudnn && !call->dropout.threshold)
        return FAILED("WEFT_CUDA_ATTENTION is cudnn, but cuDNN does not support this call: %s", problem);
    *ret_choice = !problem ? BY_CUDNN : hopper ? BY_HOPPER : BY_PORTABLE;
    return OK;
}

Status attention_forward_cuda(Stream *stream, Tensor out, Tensor lse, Tensor qkv, Tensor lens,
                              Attention spec) {
    CudaAttention call;
    TRY(call_init(&call, __func__, out, qkv, qkv_shape(qkv, &spec).keys, &spec));
    call.lens = lens.data;
    call.lse = lse.data;
    call.causal = spec.causal;
    call.starts = spec.starts.data;
    call.dropout = cuda_dropout(&spec.dropout);
    Choice choice;
    TRY(choose(stream, qkv.dtype, &call, false, &choice));
    if (choice == BY_HOPPER)
        LAUNCH(launch_attention_forward_hopper(cuda_stream(stream), qkv.dtype, &call));
    else if (choice == BY_PORTABLE)
        LAUNCH(launch_attention_forward(cuda_stream(stream), qkv.dtype, &call));
    return OK;
}

/* Needs: qkv, out, lse. */
Status attention_backward_cuda(Stream *stream, Tensor dqkv, Tensor dout, Tensor out, Tensor lse, Tensor qkv,
                               Tensor lens, Attention spec) {
    CudaAttention call;
    QkvShape s = qkv_shape(qkv, &spec);
    Tensor dkv = spec.kv.data ? spec.dkv : dqkv;
    TRY(call_init(&call, __func__, out, qkv, s.keys, &spec));
    if (dqkv.dtype != qkv.dtype || dkv.dtype != qkv.dtype)
        return FAILED("internal: %s: gradients are %s and %s; expected %s on a GPU", __func__,
                      dtype_name(dqkv.dtype), dtype_name(dkv.dtype), dtype_name(qkv.dtype));
    call.lens = lens.data;
    call.lse = lse.data;
    call.causal = spec.causal;
    call.starts = spec.starts.data;
    call.dropout = cuda_dropout(&spec.dropout);
    call.dout = outputs_of(dout);
    call.dq = heads_of(dqkv, &s, PART_Q);
    call.dk = heads_of(dkv, &s, PART_K);
    call.dv = heads_of(dkv, &s, PART_V);
    Choice choice;
    TRY(choose(stream, qkv.dtype, &call, true, &choice));
    void *scratch = NULL;
    HopperCall shape = {.B = call.B,
                        .H = call.H,
                        .group = call.group,
                        .queries = call.queries,
                        .keys = call.keys,
                        .D = call.D,
                        .parts = call.parts,
                        .windowed = call.window || call.starts,
                        .dropout = spec.dropout.p > 0};
    bool brief = hopper_is_short(&shape), summed = choice == BY_HOPPER && !brief && call.group == 1;
    if (summed) call.sums = spec.sums.data;
    shape.sums = call.sums;
    if (choice == BY_HOPPER && brief) {
        LAUNCH(launch_attention_backward_short(cuda_stream(stream), qkv.dtype, &call));
    } else if (choice == BY_HOPPER) {
        TRY(stream_workspace(stream, hopper_layout(&shape).end * sizeof(float), &scratch));
        LAUNCH(launch_attention_backward_hopper(cuda_stream(stream), qkv.dtype, &call, scratch));
    } else if (choice == BY_PORTABLE) {
        TRY(stream_workspace(stream, tensor_bytes(lse), &scratch));
        call.delta = scratch;
        LAUNCH(launch_attention_backward(cuda_stream(stream), qkv.dtype, &call));
    }
    if (summed || !spec.sums.data) return OK;
    Tensor x = qkv_rows(dqkv);
    TRY(stream_workspace(stream, column_sums_bytes(tensor_rows(x), tensor_cols(x)), &scratch));
    return column_sums(stream, spec.sums, x, scratch);
}

/* Number of splits of a head's keys: each must keep a block's warps busy, and more splits than the device can
 * run at once do not help. */
static int splits_for(const CudaDevice *device, const CudaAttention *call) {
    enum { KEYS = 1024, MOST = 64 };
    int64_t heads = (int64_t)call->B * call->H, room = 2 * device->processors / heads;
    int64_t splits = call->keys / KEYS;
    if (splits > room) splits = room;
    if (splits > MOST) splits = MOST;
    return splits > 1 ? (int)splits : 1;
}

/* Converts caches of another type to `type` in scratch memory and makes the call read those: the kernels for
 * many queries support only one type. */
static Status widen_caches(Stream *stream, DType type, DType cache, CudaAttention *call) {
    int64_t head = (int64_t)call->keys * call->D, heads = call->H / call->group;
    size_t bytes = (size_t)(call->B * heads * head) * dtype_size(type);
    size_t each = (bytes + 255) / 256 * 256;
    void *space = NULL;
    TRY(stream_workspace(stream, 2 * each, &space));
    void *k = space, *v = (char *)space + each;
    LAUNCH(launch_attention_widen(cuda_stream(stream), type, cache, call, k, v));
    CudaHeads rows = {.batch = heads * head, .head = head, .row = call->D};
    call->k = call->v = rows;
    call->k.data = k;
    call->v.data = v;
    return OK;
}

/* How many query heads that share keys a block attends with: more, the more heads there are, so that keys are
 * read less often but most multiprocessors have something to do. And how many blocks share the keys: fewer,
 * the more heads there are. The result is the same, so the number of sequences may decide. */
static void choose_blocks(const CudaDevice *device, const CudaAttention *call, int *ret_blocks,
                          int *ret_queries) {
    enum { BRIEF = 1024 }; /* keys up to which clusters of 4 blocks, which start earlier, are faster than 8 */
    const char *requested = getenv("WEFT_CUDA_CLUSTER");
    int asked = requested ? atoi(requested) : 0, queries = 1, processors = device->processors;
    int64_t heads = (int64_t)call->B * call->H, units = heads;
    for (; queries < call->group && units > 3 * processors / 4; queries *= 2) units = heads / (2 * queries);
    int few = call->keys <= BRIEF ? 4 : 8;
    int blocks = units <= processors / 8 ? few : units <= processors / 2 ? 2 : 1;
    *ret_blocks = asked == 1 || asked == 2 || asked == 4 || asked == 8 ? asked : blocks;
    *ret_queries = queries;
}

/* The numbers of new and past positions are known only on the device, and are clamped there. */
Status attention_decode_cuda(Stream *stream, Tensor out, Tensor kcache, Tensor vcache, Tensor qkv,
                             Tensor past, Tensor fresh, Attention spec) {
    CudaAttention call;
    TRY(call_init(&call, __func__, out, qkv, kcache.dim[2], &spec));
    CudaHeads k = call.k, v = call.v;
    call.k = cache_of(kcache);
    call.v = cache_of(vcache);
    call.past = past.data;
    call.fresh = fresh.data;
    call.causal = true;
    if (call.queries == 1 && attention_cluster_supports(qkv.dtype, kcache.dtype, &call, k, v)) {
        int blocks, queries;
        choose_blocks(cuda_device(stream), &call, &blocks, &queries);
        LAUNCH(launch_attention_cluster(cuda_stream(stream), qkv.dtype, &call, k, v, blocks, queries));
        return OK;
    }
    if (call.queries == 1) {
        void *parts = NULL;
        int splits = splits_for(cuda_device(stream), &call);
        size_t room = (size_t)(call.B * call.H) * (size_t)splits * (size_t)(call.D + 2) * sizeof(float);
        TRY(stream_workspace(stream, room, &parts));
        LAUNCH(launch_attention_decode(cuda_stream(stream), qkv.dtype, kcache.dtype, &call, k, v, splits,
                                       parts));
        return OK;
    }
    LAUNCH(launch_attention_append(cuda_stream(stream), qkv.dtype, kcache.dtype, &call, k, v));
    if (kcache.dtype != qkv.dtype) TRY(widen_caches(stream, qkv.dtype, kcache.dtype, &call));
    LAUNCH(launch_attention_forward(cuda_stream(stream), qkv.dtype, &call));
    return OK;
}
