/* The files of a tokenizer directory, as transformers writes them. */
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

static const char *const files[] = {
    "tokenizer.json",          "tokenizer_config.json", "vocab.json",      "merges.txt",          "vocab.txt",
    "special_tokens_map.json", "added_tokens.json",     "tokenizer.model", "chat_template.jinja", NULL};

bool tokenizer_is_file(const char *name) {
    int i = 0;
    while (files[i] && strcmp(files[i], name)) i++;
    return files[i];
}

Status tokenizer_dir(const char *path, char **ret_dir) {
    if (path_is_dir(path)) return str_dup(path, ret_dir);
    const char *slash = strrchr(path, '/');
    if (!slash) return str_dup(".", ret_dir);
    return str_format(ret_dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

Status tokenizer_copy(const char *from, const char *to) {
    CLEANUP(mem_freep) char *dir = NULL;
    TRY(tokenizer_dir(from, &dir));
    return dir_copy_files(to, dir, files);
}
