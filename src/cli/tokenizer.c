/* weft tokenizer: the family of tokenizer commands, and the input of encode and decode. */
#include "cli/tokenizer_input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/command.h"

enum { READ_SIZE = 1 << 16 };

Status open_tokenizer(Tokenizer **ret_tokenizer, const char *name) {
    if (strcmp(name, "bytes") == 0 && !path_exists(name)) return tokenizer_new_bytes(ret_tokenizer, false);
    return tokenizer_load(ret_tokenizer, name);
}

/* Reads to the end of a pipe, terminal or standard input. */
static Status read_all(int fd, const char *name, char **ret_text, size_t *ret_size) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t capacity = 0, size = 0;
    for (;;) {
        TRY(mem_grow(&text, &capacity, size + READ_SIZE, 1));
        ssize_t got = read(fd, text + size, capacity - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAILED("%s: cannot read: %s", name, strerror(errno));
        if (got == 0) break;
        size += (size_t)got;
    }
    *ret_text = text;
    *ret_size = size;
    text = NULL;
    return OK;
}

static Status read_special_file(TextInput *input, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return FAILED("%s: cannot open: %s", path, strerror(errno));
    Status status = read_all(fd, path, &input->owned, &input->size);
    close(fd);
    input->data = input->owned;
    return status;
}

static Status read_path(TextInput *input, const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return read_special_file(input, path);
    TRY(file_map_init(&input->map, path));
    input->data = (const char *)input->map.data;
    input->size = input->map.size;
    return OK;
}

Status text_input_init(TextInput *ret_input, const char *option, const char *text, const char *path) {
    if (text && path) return USAGE("--%s cannot be combined with --file; use one or the other", option);
    CLEANUP(text_input_done) TextInput input = {.name = path};
    if (text) {
        input.name = option;
        input.data = text;
        input.size = strlen(text);
    } else if (path && strcmp(path, "-") != 0) {
        TRY(read_path(&input, path));
    } else {
        input.name = "standard input";
        TRY(read_all(STDIN_FILENO, input.name, &input.owned, &input.size));
        input.data = input.owned;
    }
    if (!input.data) input.data = "";
    *ret_input = input;
    input = (TextInput){0};
    return OK;
}

void text_input_done(TextInput *input) {
    file_map_done(&input->map);
    free(input->owned);
    *input = (TextInput){0};
}

const Command command_tokenizer = {
    .name = "tokenizer",
    .summary = "train tokenizers, encode and decode text",
    .description = "For the options of a command, see for example 'weft help tokenizer train'.",
    .family = true,
    .examples = {{"Train a byte-level BPE tokenizer like GPT-2's",
                  "weft tokenizer train --vocab 32000 --data corpus.txt --out tok"},
                 {"Tokenize a text", "weft tokenizer encode --tokenizer gpt2 --text 'Hello, world'"},
                 {"Decode tokens", "weft tokenizer decode --tokenizer gpt2 --ids '15496 11 995'"}},
};
