/* Rounds of two kinds of pruning, compared.
 *
 *   OUT/KIND           each kind's rounds, as prune_rounds writes them; the second links to round 0 of the
 *                      first
 *   OUT/pruning.json   both kinds' pruning.json, and the conclusion
 */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "compress/prune_rounds.h"

static Status open_out(const PruneSpec *spec, const char *file) {
    if (spec->world->rank == 0) {
        if (!spec->resume || !path_exists(file)) TRY(hf_save_check(spec->train.ckpt.out));
        TRY(dir_make(spec->train.ckpt.out));
        CLEANUP(json_decrefp) json_t *empty = json_pack("{s:[]}", "kinds");
        if (!path_exists(file)) TRY(json_write_file(file, empty));
    }
    return barrier(spec->world);
}

static Status write_result(const PruneSpec *spec, const char *file, json_t *first, json_t *second,
                           json_t **ret_result) {
    CLEANUP(json_decrefp) json_t *result = json_pack("{s:[O,O]}", "kinds", first, second);
    if (!result) return FAILED("out of memory");
    TRY(prune_conclude(spec, result, first, second));
    TRY(json_write_file(file, result));
    *ret_result = json_incref(result);
    return OK;
}

Status prune_both(const PruneSpec *spec, json_t **ret_result, bool *ret_stopped) {
    CLEANUP(mem_freep) char *file = NULL, *one = NULL, *two = NULL;
    CLEANUP(json_decrefp) json_t *first = NULL, *second = NULL;
    const char *out = spec->train.ckpt.out;
    PruneSpec mine = *spec;
    bool stopped = false;
    TRY(path_join(&file, out, "pruning.json"));
    TRY(path_join(&one, out, spec->kind));
    TRY(path_join(&two, out, spec->also));
    TRY(open_out(spec, file));
    mine.train.ckpt.out = one;
    TRY(prune_rounds(&mine, NULL, &first, &stopped));
    *ret_stopped = stopped;
    if (stopped) {
        *ret_result = json_incref(first);
        return OK;
    }
    mine.kind = spec->also;
    mine.train.ckpt.out = two;
    TRY(prune_rounds(&mine, one, &second, &stopped));
    *ret_stopped = stopped;
    if (spec->world->rank == 0 && !stopped) return write_result(spec, file, first, second, ret_result);
    *ret_result = json_incref(second);
    return OK;
}
