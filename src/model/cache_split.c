/* N ranks; B sequences, T new rows of each, H heads of q and G of k and v, of width D.
 *
 * What a rank computes for a block of rows is sent as one message: out (B,T,H,D), then lse (B,H,T), in fp32.
 *
 *   a step    send (1,message) -> all-gather -> receive (N,message)
 *   a prompt  send (N,message), one for the rows of each rank -> all-to-all -> receive (N,message) */
#include "model/cache_split.h"

#include "model/parts/attention.h"

CachePart cache_part(const Group *group, int64_t context, int64_t block) {
    int64_t ranks = group ? group->size : 1, rounds = (context + ranks * block - 1) / (ranks * block);
    CachePart part = {.block = block < context ? block : context, .rank = 0, .ranks = 1};
    if (!group) return part;
    part.block = (context + ranks * rounds - 1) / (ranks * rounds);
    part.rank = group->rank, part.ranks = group->size;
    return part;
}

static int64_t message_size(const ModelConfig *config, int64_t rows) {
    return rows * config->heads * (config_head_width(config) + 1);
}

void cache_split_take(CacheSplit *split, const ModelConfig *config, DType dtype, int64_t same, int64_t own,
                      Bump *bump) {
    if (!split->group) return;
    int64_t N = split->group->size, most = same > own ? same : own;
    int64_t step = message_size(config, same), prompt = N * message_size(config, own);
    split->qkv = tensor_take(bump, tensor_2d(NULL, dtype, N * own, attention_rows(config, 1)));
    split->send = tensor_take(bump, tensor_1d(NULL, DT_F32, step > prompt ? step : prompt));
    split->receive = tensor_take(bump, tensor_1d(NULL, DT_F32, N * message_size(config, most)));
}

/* The results in a message for rows of out's shape. */
typedef struct Message {
    Tensor out, lse;
} Message;

static int64_t message_of(Tensor out) {
    return tensor_count(out) / tensor_cols(out) * (tensor_cols(out) + 1);
}

static Message message_at(Tensor messages, int64_t index, Tensor out) {
    float *data = tensor_f32(messages) + index * message_of(out);
    int64_t B = out.dim[0], T = out.dim[1], H = out.dim[2], D = out.dim[3];
    return (Message){tensor_4d(data, DT_F32, B, T, H, D),
                     tensor_3d(data + tensor_count(out), DT_F32, B, H, T)};
}

/* Attends with some rows to the positions here. */
static Status attend_here(Pass *pass, Message to, const KvCache *cache, Tensor qkv, Tensor past, Tensor fresh,
                          Attention spec) {
    spec.part = pass->decode->split->part;
    spec.lse = to.lse;
    return attention_decode(pass->exec, to.out, cache->k, cache->v, qkv, past, fresh, spec);
}

static Status attend_same(Pass *pass, Tensor out, const KvCache *cache, Tensor qkv, Attention spec) {
    const Decode *decode = pass->decode;
    const CacheSplit *split = decode->split;
    Tensor send = tensor_slice(split->send, 0, message_of(out)), receive = split->receive;
    receive.dim[0] = split->group->size * message_of(out);
    TRY(attend_here(pass, message_at(send, 0, out), cache, qkv, decode->past, decode->fresh, spec));
    return all_gather(split->group, pass->exec->stream, receive, send, NULL);
}

static Status attend_own(Pass *pass, Tensor out, const KvCache *cache, Tensor qkv, Attention spec) {
    const CacheSplit *split = pass->decode->split;
    Group *group = split->group;
    Tensor all = tensor_slice(split->qkv, 0, group->size * qkv.dim[1]), rows = qkv, send = split->send,
           receive = split->receive;
    TRY(all_gather(group, pass->exec->stream, all, tensor_2d(qkv.data, qkv.dtype, qkv.dim[1], all.dim[1]),
                   NULL));
    for (int rank = 0; rank < group->size; rank++) {
        rows.data = tensor_slice(all, rank * qkv.dim[1], qkv.dim[1]).data;
        TRY(attend_here(pass, message_at(send, rank, out), cache, rows, tensor_slice(split->past, rank, 1),
                        tensor_slice(split->fresh, rank, 1), spec));
    }
    send.dim[0] = receive.dim[0] = group->size * message_of(out);
    return all_to_all(group, pass->exec->stream, receive, send, NULL, NULL, NULL);
}

Status cache_split_attend(Pass *pass, Tensor out, const KvCache *cache, Tensor qkv, Attention spec) {
    const CacheSplit *split = pass->decode->split;
    TRY(split->own_rows ? attend_own(pass, out, cache, qkv, spec) : attend_same(pass, out, cache, qkv, spec));
    Message total = message_at(split->receive, 0, out);
    for (int rank = 1; rank < split->group->size; rank++) {
        Message part = message_at(split->receive, rank, out);
        TRY(attention_combine(pass->exec, total.out, total.lse, part.out, part.lse));
    }
    return convert(pass->exec, out, total.out);
}
