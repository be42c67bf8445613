/* Rounds of two kinds of pruning, compared.
 *
 *   OUT/KIND           each kind's rounds, as prune_rounds writes them; the second links to round 0 of the
 *                      first
 *   OUT/pruning.json   both kinds' pruning.json, and the conclusion
 *   OUT/loss.svg, OUT/time.svg
 */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "cli/prune.h"

static Status open_out(const Invocation *call, const PruneArgs *args, const char *file) {
    if (call->world->rank == 0) {
        if (!args->resume || !path_exists(file)) TRY(hf_save_check(args->train.config.out));
        TRY(dir_make(args->train.config.out));
        CLEANUP(json_decrefp) json_t *empty = json_pack("{s:[]}", "kinds");
        if (!path_exists(file)) TRY(json_write_file(file, empty));
    }
    return barrier(call->world);
}

static Status write_result(const char *out, const char *file, json_t *first, json_t *second,
                           json_t **ret_result) {
    CLEANUP(json_decrefp) json_t *result = json_pack("{s:[O,O]}", "kinds", first, second);
    if (!result) return FAILED("out of memory");
    TRY(prune_conclude(result, first, second));
    TRY(json_write_file(file, result));
    TRY(prune_plot(out, first, second));
    *ret_result = json_incref(result);
    return OK;
}

Status prune_both(Invocation *call, const PruneArgs *args, json_t **ret_result) {
    CLEANUP(mem_freep) char *file = NULL, *one = NULL, *two = NULL;
    CLEANUP(json_decrefp) json_t *first = NULL, *second = NULL;
    const char *out = args->train.config.out;
    PruneArgs mine = *args;
    TRY(path_join(&file, out, "pruning.json"));
    TRY(path_join(&one, out, args->kind));
    TRY(path_join(&two, out, args->also));
    TRY(open_out(call, args, file));
    mine.train.config.out = one;
    TRY(prune_rounds(call, &mine, NULL, &first));
    if (call->incomplete) {
        *ret_result = json_incref(first);
        return OK;
    }
    mine.kind = args->also;
    mine.train.config.out = two;
    TRY(prune_rounds(call, &mine, one, &second));
    if (call->world->rank == 0 && !call->incomplete)
        return write_result(out, file, first, second, ret_result);
    *ret_result = json_incref(second);
    return OK;
}
