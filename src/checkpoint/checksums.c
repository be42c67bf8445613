#include "checkpoint/checksums.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"

enum { HEX = 8 };

static json_t *hex(uint32_t crc) {
    return json_sprintf("%0*x", HEX, crc);
}

Status checksums_json(SaveList *list, json_t **ret_json) {
    CLEANUP(json_decrefp) json_t *json = json_object();
    bool ok = json != NULL;
    for (size_t i = 0; ok && i < list->files; i++) {
        size_t count = 0;
        const SafeSum *sum = safe_writer_sums(list->file[i], &count);
        json_t *file = json_object();
        ok = !json_object_set_new(json, path_base(safe_writer_path(list->file[i])), file);
        for (size_t k = 0; ok && k < count; k++)
            ok = !json_object_set_new(file, sum[k].name, hex(sum[k].crc));
    }
    if (!ok) return FAILED("out of memory for the checksums of a checkpoint");
    return MOVE(ret_json, json);
}

static Status seal_of(const json_t *state, uint32_t *ret_seal) {
    CLEANUP(json_decrefp) json_t *rest = json_clone(state);
    if (!rest) return FAILED("out of memory for the checksum of a checkpoint");
    json_object_del(rest, "seal");
    CLEANUP(mem_freep) char *text = NULL;
    TRY(json_text(rest, JSON_COMPACT | JSON_SORT_KEYS, &text));
    *ret_seal = crc32c(0, text, strlen(text));
    return OK;
}

Status checksums_seal(json_t *state) {
    uint32_t seal = 0;
    TRY(seal_of(state, &seal));
    if (json_object_set_new(state, "seal", hex(seal)))
        return FAILED("out of memory for the checksum of a checkpoint");
    return OK;
}

/* ---- verifying ---- */

typedef struct Check {
    const SafeTensor *tensor;
    const char *path, *expected;
    uint32_t found;
} Check;

typedef struct Verifier {
    SafeFile **file;
    size_t files, files_capacity;
    Check *check;
    size_t checks, checks_capacity;
} Verifier;

static void verifier_done(Verifier *v) {
    for (size_t i = 0; i < v->files; i++) safe_free(v->file[i]);
    free(v->file);
    free(v->check);
}

static Status add_file(Verifier *v, const char *dir, const char *name, const json_t *sums) {
    char shown[NAME_TEXT];
    if (strchr(name, '/') || !json_is_object(sums))
        return DAMAGED("%s/%s: 'checksums' must map file names to objects of checksums", dir,
                       CHECKPOINT_STATE);
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, name));
    if (access(path, F_OK) != 0 && errno == ENOENT) return DAMAGED("%s is missing", path);
    TRY(mem_grow(&v->file, &v->files_capacity, v->files + 1, sizeof *v->file));
    TRY(safe_open(&v->file[v->files], path));
    const SafeFile *file = v->file[v->files++];
    TRY(mem_grow(&v->check, &v->checks_capacity, v->checks + safe_count(file), sizeof *v->check));
    for (size_t i = 0; i < safe_count(file); i++) {
        const SafeTensor *tensor = safe_at(file, i);
        const char *expected = json_string_value(json_object_get(sums, tensor->name));
        if (!expected)
            return DAMAGED("%s: tensor '%s' has no checksum in %s; the files belong to different checkpoints",
                           path, name_text(shown, tensor->name), CHECKPOINT_STATE);
        v->check[v->checks++] = (Check){tensor, safe_path(file), expected, 0};
    }
    if (json_object_size(sums) == safe_count(file)) return OK;
    return DAMAGED("%s: has %zu tensors, but %s lists %zu; the files belong to different checkpoints", path,
                   safe_count(file), CHECKPOINT_STATE, json_object_size(sums));
}

static Status check_seal(const char *path, const json_t *state) {
    const char *seal = json_string_value(json_object_get(state, "seal"));
    uint32_t found = 0;
    char text[HEX + 1];
    TRY(seal_of(state, &found));
    snprintf(text, sizeof text, "%0*x", HEX, found);
    if (seal && !strcmp(seal, text)) return OK;
    return DAMAGED("%s is damaged: its checksum is %s instead of %s", path, text, seal ? seal : "(none)");
}

/* Computes the checksums of every `parts`-th tensor, starting with `part`. */
static Status run_checks(Verifier *v, int part, int parts) {
#pragma omp parallel for schedule(dynamic)
    for (size_t i = (size_t)part; i < v->checks; i += (size_t)parts)
        v->check[i].found = crc32c(0, v->check[i].tensor->data, v->check[i].tensor->bytes);
    for (size_t i = (size_t)part; i < v->checks; i += (size_t)parts) {
        const Check *check = &v->check[i];
        char found[HEX + 1], shown[NAME_TEXT];
        snprintf(found, sizeof found, "%0*x", HEX, check->found);
        if (strcmp(found, check->expected))
            return DAMAGED("%s: tensor '%s' is damaged: its checksum is %s instead of %s", check->path,
                           name_text(shown, check->tensor->name), found, check->expected);
    }
    return OK;
}

static Status verify_part(const char *dir, VerifyScope scope, int part, int parts, Verified *ret_verified) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, CHECKPOINT_STATE));
    if (!path_exists(path)) return OK;
    CLEANUP(json_decrefp) json_t *state = NULL;
    TRY(json_read_file(path, &state));
    const json_t *checksums = json_object_get(state, "checksums");
    if (!checksums && !json_object_get(state, "seal")) return OK; /* written by an older version */
    TRY(check_seal(path, state));
    CLEANUP(verifier_done) Verifier verifier = {0};
    const char *name;
    json_t *sums;
    json_object_foreach((json_t *)(uintptr_t)checksums, name, sums) {
        if (scope == VERIFY_ALL || strcmp(name, CHECKPOINT_OPTIMIZER))
            TRY(add_file(&verifier, dir, name, sums));
    }
    TRY(run_checks(&verifier, part, parts));
    for (size_t i = 0; i < verifier.checks; i++)
        ret_verified->bytes += (int64_t)verifier.check[i].tensor->bytes;
    ret_verified->tensors = (int64_t)verifier.checks;
    return OK;
}

Status checksums_verify(const char *dir, VerifyScope scope, Mesh *mesh, Verified *ret_verified) {
    Verified verified = {0};
    TRY(save_agree(mesh, verify_part(dir, scope, mesh ? mesh->rank : 0, mesh ? mesh->size : 1, &verified)));
    if (ret_verified) *ret_verified = verified;
    return OK;
}

Status checksums_verify_at(const char *dir, const RootDisk *disk, VerifyScope scope, Mesh *mesh) {
    if (!disk) return checksums_verify(dir, scope, mesh, NULL);
    return save_agree(mesh, disk->group->rank ? OK : checksums_verify(dir, scope, NULL, NULL));
}
