/* Fixture for tests that prepare data and train on it: a temporary directory with small corpora and
 * tokenizers. */
#ifndef WEFT_TESTS_CLI_CORPUS_H
#define WEFT_TESTS_CLI_CORPUS_H

#include <sys/stat.h>

#include "base/fs.h"
#include "base/memory.h"
#include "program.h"

static char corpus_root[64];

static inline int corpus_setup(void **state) {
    program_setup(state);
    snprintf(corpus_root, sizeof corpus_root, "/tmp/weft-corpus-XXXXXX");
    if (!mkdtemp(corpus_root)) return -1;
    char cache[96];
    snprintf(cache, sizeof cache, "%s/cache", corpus_root);
    return setenv("WEFT_CACHE", cache, 1);
}

static inline int corpus_teardown(void **state) {
    Status status = dir_remove(corpus_root);
    bool removed = !status;
    status_free(status);
    return removed ? 0 : -1;
}

/* The path of a name in the directory. The result is valid until the 16th next call. */
static inline const char *at(const char *name) {
    static char paths[16][256];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", corpus_root, name);
    return path;
}

static inline void put_file(const char *name, const void *data, size_t size) {
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static inline void put_text(const char *name, const char *text) {
    put_file(name, text, strlen(text));
}

/* Writes `lines` short sentences, as text or JSON lines; the same seed gives the same file. */
static inline void put_sentences(const char *name, int lines, unsigned seed, bool json) {
    static const char *const words[] = {"the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"};
    FILE *file = fopen(at(name), "w");
    assert_non_null(file);
    for (int i = 0; i < lines; i++) {
        if (json) fputs("{\"text\": \"", file);
        for (int j = 0; j < 8; j++) {
            seed = seed * 1664525u + 1013904223u;
            fprintf(file, "%s%s", j ? " " : "", words[(seed >> 16) % 9]);
        }
        fputs(json ? "\"}\n" : "\n", file);
    }
    assert_int_equal(fclose(file), 0);
}

/* A byte as GPT-2 writes it in its vocabulary, in UTF-8. */
static inline const char *byte_name(int byte, char out[8]) {
    int code = byte;
    bool plain = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    if (!plain) {
        code = 256;
        for (int b = 0; b < byte; b++)
            code += !((b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae);
    }
    if (code < 0x80)
        snprintf(out, 8, "%s%c", code == '"' || code == '\\' ? "\\" : "", code);
    else
        snprintf(out, 8, "%c%c", 0xc0 | code >> 6, 0x80 | (code & 0x3f));
    return out;
}

/* A byte-level BPE tokenizer: the bytes, the given merges ("t h", "th e"), <|endoftext|> and `unused` tokens
 * that never occur in text. */
static inline void put_wide_bpe(const char *name, const char *const *merges, int count, int unused) {
    char path[64], text[8];
    assert_ok(dir_make(at(name)));
    snprintf(path, sizeof path, "%s/vocab.json", name);
    FILE *vocab = fopen(at(path), "w");
    snprintf(path, sizeof path, "%s/merges.txt", name);
    FILE *rules = fopen(at(path), "w");
    assert_non_null(vocab);
    assert_non_null(rules);
    fputs("{", vocab);
    fputs("#version: 0.2\n", rules);
    for (int i = 0; i < 256; i++) fprintf(vocab, "\"%s\": %d, ", byte_name(i, text), i);
    for (int i = 0; i < count; i++) {
        const char *space = strchr(merges[i], ' ');
        fprintf(vocab, "\"%.*s%s\": %d, ", (int)(space - merges[i]), merges[i], space + 1, 256 + i);
        fprintf(rules, "%s\n", merges[i]);
    }
    for (int i = 0; i < unused; i++) fprintf(vocab, "\"unused%d\": %d, ", i, 257 + count + i);
    fprintf(vocab, "\"<|endoftext|>\": %d}\n", 256 + count);
    assert_int_equal(fclose(vocab), 0);
    assert_int_equal(fclose(rules), 0);
}

static inline void put_bpe(const char *name, const char *const *merges, int count) {
    put_wide_bpe(name, merges, count, 0);
}

/* A BERT vocabulary of the words above. */
static inline void put_wordpiece(const char *name) {
    char path[64];
    assert_ok(dir_make(at(name)));
    snprintf(path, sizeof path, "%s/vocab.txt", name);
    put_text(path,
             "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nquick\nbrown\nfox\njump\n##s\nover\na\nlazy\ndog\n");
}

static inline json_t *json_of(const Ran *ran) {
    json_t *json = NULL;
    assert_ok(json_parse(ran->out, strlen(ran->out), "standard output", &json));
    return json;
}

/* A number in the JSON result of a successful run; -1 if the key is missing. */
static inline int64_t number_in(const Ran *ran, const char *key) {
    if (ran->code) fail_msg("exit code %d: %s", ran->code, ran->err);
    json_t *json = json_of(ran);
    const json_t *value = json_object_get(json, key);
    int64_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    json_decref(json);
    return number;
}

static inline void flip_bit(const char *path, long offset) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    fputc(byte ^ 4, file);
    assert_int_equal(fclose(file), 0);
}

/* The number of directory entries whose names contain `part`. */
static inline int entries_with(const char *dir, const char *part) {
    char command[256];
    snprintf(command, sizeof command, "ls -A '%s' 2>/dev/null | grep -c -- '%s'", dir, part);
    FILE *pipe = popen(command, "r");
    int count = 0;
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

/* Runs a shell command in the directory; $WEFT is the program. */
static inline Ran shell(const char *line) {
    char full[4096];
    FILE *out = tmpfile(), *err = tmpfile();
    assert_non_null(out);
    assert_non_null(err);
    snprintf(full, sizeof full, "cd '%s' && { %s; } >&%d 2>&%d", corpus_root, line, fileno(out), fileno(err));
    int state = system(full);
    Ran ran = {.code = WIFEXITED(state) ? WEXITSTATUS(state) : 128};
    ran.out = program_slurp(out);
    ran.err = program_slurp(err);
    return ran;
}

#endif
