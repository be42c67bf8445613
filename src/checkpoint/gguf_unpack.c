/* A GGUF file as a checkpoint directory, which the rest of the program reads. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "checkpoint/gguf_read.h"

static Status write_config(const GgufFile *file, const char *dir) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(json_decrefp) json_t *json = NULL;
    ModelConfig config;
    TRY(gguf_config(file, &config));
    TRY(hf_config_json(&config, &json));
    TRY(path_join(&path, dir, "config.json"));
    return json_write_file(path, json);
}

static Status link_weights(const char *path, const char *dir) {
    CLEANUP(mem_freep) char *link = NULL, *full = realpath(path, NULL);
    TRY(path_join(&link, dir, GGUF_WEIGHTS));
    if (!full || symlink(full, link) != 0) return FAILED("%s: cannot link: %s", path, strerror(errno));
    return OK;
}

static Status fill_dir(const char *path, const char *dir) {
    CLEANUP(gguf_file_done) GgufFile file = {0};
    TRY(gguf_file_open(&file, path));
    TRY(write_config(&file, dir));
    TRY(gguf_write_tokenizer(&file, dir));
    return link_weights(path, dir);
}

Status gguf_unpack(const char *path, char **ret_dir) {
    CLEANUP(mem_freep) char *dir = NULL;
    TRY(dir_make_temporary(&dir));
    Status status = fill_dir(path, dir);
    if (!status) return MOVE(ret_dir, dir);
    status_free(dir_remove(dir));
    return status;
}
