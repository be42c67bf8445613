/* Frozen matrices in blocks of codes (tensor/blocks.h), while adapters are trained beside them.
 *
 * A rank keeps its shard of such a unit, or all of it if nothing is sharded: the codes of the matrices, which
 * are the unit's first elements, their scales, and the other elements (norms, biases) in the type of
 * computation. While a block runs, its units have room in the arena of gathered parameters, as in ZeRO-3: the
 * rank decodes its shard there, and gathers the others. A block of codes has consecutive values of one matrix
 * of the rank. */
#include <string.h>

#include "parallel/shard_internal.h"

enum { ALIGN = 64 };

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Matrices of layers except routers. */
static bool may_code(const ParamSlot *slot) {
    return param_is_hidden_matrix(&slot->desc) && !strstr(slot->desc.name, ".router.") &&
           slot->offset % CODE_BLOCK == 0;
}

int64_t base_coded(const ShardSpec *spec, const Unit *layout) {
    int matrices = 0;
    if (!spec->base || !layout->frozen) return 0;
    for (size_t i = 0; i < layout->count; i++) {
        if (layout->slot[i].desc.decay && !may_code(&layout->slot[i])) return 0;
        matrices += layout->slot[i].desc.decay;
    }
    return matrices ? layout->range[1].first + layout->range[1].count : 0; /* those with decay come first */
}

static size_t codes_size(const ShardSpec *spec, int64_t coded) {
    return aligned((size_t)code_bytes(spec->base, coded));
}

static size_t scales_size(int64_t coded) {
    return aligned((size_t)code_blocks(coded) * sizeof(float));
}

size_t base_bytes(const ShardSpec *spec, int64_t coded, int64_t count) {
    return codes_size(spec, coded) + scales_size(coded) + shard_bytes(count - coded, spec->dtype);
}

void *base_plain(const Shards *shards, const ShardUnit *unit) {
    return (char *)unit->param.data + codes_size(&shards->spec, unit->coded) + scales_size(unit->coded);
}

Values shard_codes(const Shards *shards, int at, int64_t *ret_count) {
    const ShardUnit *unit = &shards->unit[at];
    *ret_count = unit->coded;
    if (!unit->coded) return (Values){0};
    char *codes = unit->param.data;
    return (Values){.data = codes,
                    .code = shards->spec.base,
                    .scales = (float *)(codes + codes_size(&shards->spec, unit->coded))};
}

Status base_decode(Shards *shards, const ShardUnit *unit, Tensor to) {
    int64_t coded = 0, rest = unit->count - unit->coded;
    Values codes = shard_codes(shards, (int)(unit - shards->unit), &coded);
    Tensor plain = tensor_slice(to, coded, rest);
    if (coded)
        TRY(decode_blocks(shards->exec, tensor_slice(to, 0, coded),
                          tensor_1d(codes.data, DT_U8, code_bytes(codes.code, coded)),
                          tensor_1d(codes.scales, DT_F32, code_blocks(coded)), codes.code));
    if (!rest) return OK;
    return stream_copy(shards->exec->stream, plain.data, base_plain(shards, unit), tensor_bytes(plain),
                       COPY_ON_DEVICE);
}
