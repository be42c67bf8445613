/* Token files: documents round-trip with any number of threads, and damage is found before a damaged token is
 * used. */
#include "data/prepare.h"

#include <dirent.h>
#include <sys/stat.h>

#include "data/sentence.h"
#include "data/token_file.h"
#include "files.h"

typedef struct Prepared {
    char dir[96];
    char file[128]; /* the first token file */
    PrepareResult result;
} Prepared;

static void prepared_done(Prepared *prepared) {
    prepare_result_done(&prepared->result);
}

static Status make(const Files *files, const char *name, PrepareSpec spec, Prepared *prepared) {
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(tokenizer_new_bytes(&tokenizer, false));
    spec.tokenizer = tokenizer;
    spec.paths = files->list;
    spec.path_count = files->count;
    snprintf(prepared->dir, sizeof prepared->dir, "%s/%s", files->dir, name);
    snprintf(prepared->file, sizeof prepared->file, "%s/train-00000.tokens", prepared->dir);
    prepare_result_done(&prepared->result);
    return prepare_dir(&spec, prepared->dir, true, &prepared->result);
}

static void assert_same_files(const char *a, const char *b) {
    CLEANUP(mem_freep) char *x = NULL, *y = NULL;
    size_t m, n;
    assert_ok(file_read(a, 1 << 26, &x, &m));
    assert_ok(file_read(b, 1 << 26, &y, &n));
    assert_int_equal(m, n);
    assert_memory_equal(x, y, m);
}

/* Text of many small documents, one per line. */
static char *sample(size_t size) {
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++)
        text[i] = (i * 2654435761u >> 7) % 29 == 0 ? '\n' : (char)('a' + (i * i + i / 7) % 26);
    return text;
}

static void test_round_trip(void **state) {
    Files *files = *state;
    files->count = 0;
    files_add_text(files, "a.txt", "abc\n\nde\n");
    files_add(files, "b.txt", "\xff\0z", 3);
    CLEANUP(prepared_done) Prepared prepared = {0};
    assert_ok(make(files, "small", (PrepareSpec){.documents = DOCUMENTS_LINE}, &prepared));
    assert_int_equal(prepared.result.tokens, 3 + 1 + 2 + 1 + 3 + 1);
    assert_int_equal(prepared.result.documents, 3);
    assert_int_equal(prepared.result.bytes, 8);
    assert_int_equal(prepared.result.token_files.count, 1);
    assert_string_equal(prepared.result.token_files.path[0], prepared.file);
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    assert_ok(token_file_open(&token_file, prepared.file));
    assert_ok(token_file_verify(token_file));
    const TokenFileInfo *info = token_file_info(token_file);
    assert_int_equal(info->width, 2);
    assert_int_equal(info->tokenizer.kind, TOKENIZER_BYTES);
    assert_int_equal(info->tokenizer.vocab, BYTE_VOCAB_GPT2);
    assert_int_equal(info->tokenizer.special.end, BYTE_END);
    assert_int_equal(info->count, 1);
    int32_t tokens[11];
    assert_ok(token_file_read(token_file, 0, 11, tokens));
    assert_tokens(tokens, (int32_t[]){'a', 'b', 'c', 256, 'd', 'e', 256, 255, 0, 'z', 256}, 11);
    const int64_t starts[] = {0, 4, 7};
    for (int i = 0; i < 3; i++) {
        int64_t start = -1;
        assert_ok(token_file_document(token_file, i, &start));
        assert_int_equal(start, starts[i]);
    }
}

/* Threads, input format and compression make no difference, and small token files contain the same tokens. */
static void test_same_files(void **state) {
    enum { SIZE = 3000000 };
    Files *files = *state;
    CLEANUP(mem_freep) char *text = sample(SIZE);
    CLEANUP(prepared_done) Prepared one = {0}, other = {0};
    files->count = 0;
    files_add(files, "text.txt", text, SIZE);
    PrepareSpec spec = {
        .documents = DOCUMENTS_LINE, .threads = 1, .file_size = 1 << 20, .val_fraction = 0.07};
    assert_ok(make(files, "one", spec, &one));
    assert_true(one.result.token_files.count > 5);
    assert_int_equal(one.result.val_token_files.count, 1 + (one.result.val_tokens * 2 > 1 << 20));
    int64_t share = (one.result.documents + one.result.val_documents) * 7 / 100;
    assert_int_equal(one.result.val_documents, share);
    files->count = 0;
    const char *lines = files_name(files, "text.jsonl");
    FILE *json = fopen(lines, "w");
    for (size_t i = 0, line = 0; i <= SIZE; i++)
        if (i == SIZE || text[i] == '\n') {
            fprintf(json, "{\"text\": \"%.*s\"}\n", (int)(i - line), text + line);
            line = i + 1;
        }
    assert_int_equal(fclose(json), 0);
    const char *const forms[] = {"text.txt", "text.txt.gz", "text.jsonl", "text.txt"};
    for (int form = 0; form < 4; form++) {
        files->count = 0;
        if (form == 1)
            files_add_gz(files, forms[form], text, SIZE);
        else
            files_name(files, forms[form]);
        spec.threads = form + 1;
        assert_ok(make(files, "other", spec, &other));
        assert_int_equal(other.result.tokens, one.result.tokens);
        assert_int_equal(other.result.token_files.count, one.result.token_files.count);
        for (size_t i = 0; i < one.result.token_files.count; i++)
            assert_same_files(one.result.token_files.path[i], other.result.token_files.path[i]);
        assert_same_files(one.result.val_token_files.path[0], other.result.val_token_files.path[0]);
    }
}

/* Sentence boundaries are those of the complete text, although it is read in blocks. Files without sentences
 * have format version 1. */
static void test_sentences(void **state) {
    enum { SIZE = 2000000 };
    Files *files = *state;
    CLEANUP(mem_freep) char *text = calloc(1, SIZE + 100);
    CLEANUP(prepared_done) Prepared one = {0}, other = {0};
    size_t size = 0;
    int64_t sentences = 0;
    for (unsigned i = 0; size < SIZE; i++)
        size += (size_t)sprintf(text + size, "%sSentence %u has Dr. Who in it%.*s.", i % 9 ? " " : "\n\n", i,
                                (int)(i * 7919 % 40), ", and much more, or so it seems to us all");
    files->count = 0;
    files_add(files, "sentences.txt", text, size);
    for (size_t from = 0; from < size; sentences++) from = sentence_end(text, size, from);
    PrepareSpec spec = {.threads = 1, .file_size = 1 << 20, .sentences = true};
    assert_ok(make(files, "one", spec, &one));
    assert_int_equal(one.result.sentences, sentences);
    assert_true(one.result.token_files.count > 3);
    spec.threads = 3;
    assert_ok(make(files, "other", spec, &other));
    for (size_t i = 0; i < one.result.token_files.count; i++)
        assert_same_files(one.result.token_files.path[i], other.result.token_files.path[i]);
    int64_t marks = 0;
    for (size_t i = 0; i < one.result.token_files.count; i++) {
        CLEANUP(token_file_freep) TokenFile *token_file = NULL;
        assert_ok(token_file_open(&token_file, one.result.token_files.path[i]));
        assert_ok(token_file_verify(token_file));
        assert_true(token_file_info(token_file)->marked);
        for (int64_t k = 0; k < token_file_info(token_file)->sentences; k++, marks++) {
            int64_t start = -1, index = -1;
            int32_t tokens[4];
            assert_ok(token_file_sentence(token_file, k, &start));
            assert_ok(token_file_sentence_from(token_file, start, &index));
            assert_int_equal(index, k);
            if (start + 4 > token_file_info(token_file)->tokens) continue;
            assert_ok(token_file_read(token_file, start, 4, tokens));
            assert_true(tokens[0] == 'S' || tokens[0] == ' ' || tokens[0] == '\n');
            assert_true(tokens[1] == 'S' || tokens[1] == 'e' || tokens[2] == 'S');
        }
    }
    assert_int_equal(marks, sentences);
    spec.sentences = false;
    assert_ok(make(files, "other", spec, &other));
    CLEANUP(mem_freep) char *bytes = NULL;
    assert_ok(file_read(other.file, 1 << 26, &bytes, &size));
    assert_int_equal(bytes[8], 1);
}

static void flip(const char *path, long at, int bit) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(byte ^ 1 << bit, file);
    assert_int_equal(fclose(file), 0);
}

static Status use(const char *path) {
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    TRY(token_file_open(&token_file, path));
    return token_file_verify(token_file);
}

static void test_damage(void **state) {
    enum { SIZE = 900000 };
    Files *files = *state;
    CLEANUP(mem_freep) char *text = sample(SIZE);
    CLEANUP(prepared_done) Prepared prepared = {0};
    files->count = 0;
    files_add(files, "text.txt", text, SIZE);
    assert_ok(make(files, "damage", (PrepareSpec){.documents = DOCUMENTS_LINE}, &prepared));
    struct stat st;
    assert_int_equal(stat(prepared.file, &st), 0);
    /* Flip a bit anywhere: in the header, the tokens, the documents, the checksums. */
    for (long at = 0; at < st.st_size; at += at < 256 ? 1 : 50021) {
        flip(prepared.file, at, (int)(at % 8));
        assert_fails(use(prepared.file), 1, "train-00000.tokens: ");
        flip(prepared.file, at, (int)(at % 8));
    }
    assert_ok(use(prepared.file));
    flip(prepared.file, 256 + TOKEN_FILE_BLOCK + 17, 3);
    assert_fails(use(prepared.file), 1, "damaged between byte 1048832 and byte ");
    /* Undamaged tokens can still be read; damaged ones are never returned. */
    CLEANUP(token_file_freep) TokenFile *token_file = NULL;
    int32_t tokens[4];
    assert_ok(token_file_open(&token_file, prepared.file));
    assert_ok(token_file_read(token_file, 0, 4, tokens));
    assert_fails(token_file_read(token_file, TOKEN_FILE_BLOCK / 2 - 2, 4, tokens), 1,
                 "damaged between byte 1048832");
    flip(prepared.file, 256 + TOKEN_FILE_BLOCK + 17, 3);

    assert_int_equal(truncate(prepared.file, st.st_size - 1), 0);
    assert_fails(use(prepared.file), 1, "the file is truncated");
    assert_int_equal(truncate(prepared.file, st.st_size + 5), 0);
    assert_fails(use(prepared.file), 1, "there is extra data at the end");
    assert_int_equal(truncate(prepared.file, 100), 0);
    assert_fails(use(prepared.file), 1, "truncated: has 100 bytes");
    files_write(prepared.file, "some text", 9);
    assert_fails(use(prepared.file), 1, "not a token file");
    files_write(prepared.file, "", 0);
    assert_fails(use(prepared.file), 1, "is empty");
}

static void test_version(void **state) {
    Files *files = *state;
    CLEANUP(prepared_done) Prepared prepared = {0};
    files->count = 0;
    files_add_text(files, "a.txt", "text");
    assert_ok(make(files, "version", (PrepareSpec){0}, &prepared));
    flip(prepared.file, 8, 1);
    assert_fails(use(prepared.file), 1, "token file version 3 is not supported (expected 1");
    flip(prepared.file, 8, 1);
    flip(prepared.file, 12, 1);
    assert_fails(use(prepared.file), 1, "wrong byte order");
}

static Status list(const char *dir) {
    CLEANUP(token_file_list_done) TokenFileList found = {0};
    return token_file_list_add(&found, dir);
}

static void test_sets(void **state) {
    Files *files = *state;
    CLEANUP(mem_freep) char *text = sample(40000);
    CLEANUP(prepared_done) Prepared prepared = {0};
    files->count = 0;
    files_add(files, "text.txt", text, 40000);
    assert_ok(make(files, "set", (PrepareSpec){.file_size = 20000}, &prepared));
    assert_int_equal(prepared.result.token_files.count, 5);
    assert_ok(list(prepared.dir));
    assert_int_equal(unlink(prepared.result.token_files.path[3]), 0);
    assert_fails(list(prepared.dir), 1, "a file is missing");
    assert_int_equal(unlink(prepared.result.token_files.path[4]), 0);
    assert_fails(list(prepared.dir), 1, "is token file 1 of 5");
    assert_fails(list(files->dir), 1, "contains no training data");
}

/* Counts leftovers: entries of the parent directory that begin with the directory's name. */
static int count_leftovers(const Files *files, const char *name) {
    DIR *dir = opendir(files->dir);
    int found = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        found += !strncmp(entry->d_name, name, strlen(name)) && strcmp(entry->d_name, name);
    closedir(dir);
    return found;
}

static void test_all_or_nothing(void **state) {
    Files *files = *state;
    CLEANUP(mem_freep) char *text = sample(40000);
    CLEANUP(prepared_done) Prepared prepared = {0};
    files->count = 0;
    files_add(files, "text.txt", text, 40000);
    files_add_text(files, "bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": \n");
    assert_fails(make(files, "out", (PrepareSpec){.file_size = 20000}, &prepared), 1, "bad.jsonl: line 2");
    assert_false(path_exists(prepared.dir));
    assert_int_equal(count_leftovers(files, "out"), 0);
    files->count = 1;
    volatile sig_atomic_t stop = 2;
    assert_fails(make(files, "out", (PrepareSpec){.stop = &stop}, &prepared), 1, "stopped by a signal");
    assert_false(path_exists(prepared.dir));
    /* What a killed process left behind is removed by the next one. */
    char left[160];
    snprintf(left, sizeof left, "%s.tmp.4194305", prepared.dir);
    assert_ok(dir_make(left));
    assert_ok(make(files, "out", (PrepareSpec){0}, &prepared));
    assert_int_equal(count_leftovers(files, "out"), 0);
    /* Token files are replaced only on request, and other files never. */
    assert_fails(prepare_check(prepared.dir, false), 2,
                 "already contains token files; add --overwrite to replace them");
    assert_ok(make(files, "out", (PrepareSpec){.file_size = 20000}, &prepared));
    assert_int_equal(prepared.result.token_files.count, 5);
    assert_ok(list(prepared.dir));
    assert_int_equal(count_leftovers(files, "out"), 0);
    snprintf(left, sizeof left, "%s/notes.txt", prepared.dir);
    files_write(left, "mine", 4);
    assert_fails(prepare_check(prepared.dir, true), 2, "contains notes.txt, which is not a token file");
    assert_fails(make(files, "out", (PrepareSpec){0}, &prepared), 2, "contains notes.txt");
    assert_true(path_exists(left));
}

static void test_refusals(void **state) {
    Files *files = *state;
    CLEANUP(prepared_done) Prepared prepared = {0};
    files->count = 0;
    files_add_text(files, "a.txt", "");
    assert_fails(make(files, "none", (PrepareSpec){0}, &prepared), 1, "a.txt: no text found");
    files_add_text(files, "b.txt", "text");
    assert_fails(make(files, "none", (PrepareSpec){.val_fraction = 0.1}, &prepared), 2,
                 "of 1 document, none would be left for validation");
    assert_false(path_exists(prepared.dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_same_files),
        cmocka_unit_test(test_sentences),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_version),        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_all_or_nothing), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
