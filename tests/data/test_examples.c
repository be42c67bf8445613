/* Dialogue and classification data: the Cornell movie dialogs, pairs of utterances, rows with labels, and the
 * sequences built from them. */
#include "data/examples.h"

#include <math.h>

#include "data/cornell.h"
#include "files.h"
#include "tokenizer/internal.h"

#define CORNELL        WEFT_SOURCE_DIR "/../shared/data/cornell"
#define LINE(id, text) id " +++$+++ u0 +++$+++ m0 +++$+++ WHO +++$+++ " text "\n"
#define TALK(list)     "u0 +++$+++ u2 +++$+++ m0 +++$+++ [" list "]\n"

enum { T = 24 };

typedef struct Told {
    char text[512];
} Told;

static Status tell(void *context, const char *first, size_t first_size, const char *second,
                   size_t second_size) {
    Told *told = context;
    size_t used = strlen(told->text);
    snprintf(told->text + used, sizeof told->text - used, "%.*s/%.*s;", (int)first_size, first,
             (int)second_size, second);
    return OK;
}

static void test_cornell(void **state) {
    Files *files = *state;
    Told told = {""};
    CornellCounts counts;
    files->count = 0;
    files_add_text(files, "movie_conversations.txt",
                   TALK("'L1', 'L2', 'L3'") TALK("'L3', 'L9', 'L1'") TALK("'L4', 'L5', 'L1'") TALK(""));
    /* Latin-1 with a Windows apostrophe, a line in UTF-8, one without text. The order of lines does not
     * matter. */
    files_add_text(files, "movie_lines.txt",
                   LINE("L3", "caf\xe9 don\x92t") LINE("L1", "Hi +++$+++ there") LINE("L2", "na\xc3\xafve\r")
                       LINE("L4", "") "L5 +++$+++ u0 +++$+++ m0 +++$+++ WHO +++$+++\n");
    assert_ok(cornell_read(files->list, 2, tell, &told, &counts));
    assert_string_equal(told.text,
                        "Hi +++$+++ there/na\xc3\xafve;na\xc3\xafve/caf\xc3\xa9 don\xe2\x80\x99t;");
    assert_int_equal(counts.conversations, 4);
    assert_int_equal(counts.lines, 5);
    assert_int_equal(counts.missing, 1);
    assert_int_equal(counts.empty, 2);
    assert_true(cornell_is_named("a/movie_lines.txt.gz") && !cornell_is_named("movie_lines/a.txt"));
    assert_fails(cornell_read(files->list, 1, tell, &told, &counts), 2, "also needs movie_lines.txt");
    assert_fails(cornell_read(files->list + 1, 1, tell, &told, &counts), 2,
                 "also needs movie_conversations.txt");
    files_write(files->list[1], "L1 +++$+++ u0 +++$+++ x\n", 24);
    assert_fails(cornell_read(files->list, 2, tell, &told, &counts), 1,
                 "line 1: the number of fields is 3; expected 5");
    files_write(files->list[1], "L1 +++$+++ u +++$+++ m +++$+++ N +++$+++ x\n", 43);
    const char wrong[] = TALK("'L1'") "u0 +++$+++ u2 +++$+++ m0\n";
    files_write(files->list[0], wrong, sizeof wrong - 1);
    assert_fails(cornell_read(files->list, 2, tell, &told, &counts), 1, "line 2: expected 4 fields");
}

/* The corpus written as JSON lines contains the same pairs. */
static void test_written(void **state) {
    Files *files = *state;
    DialogueCounts counts;
    files->count = 0;
    files_add_text(files, "movie_conversations.txt", TALK("'L1', 'L2', 'L3'"));
    files_add_text(files, "movie_lines.txt",
                   LINE("L1", "Say \"hi\"") LINE("L2", "caf\xe9") LINE("L3", "Bye"));
    const char *out = files_name(files, "pairs.jsonl");
    assert_ok(dialogue_write(files->list, 2, FORMAT_CORNELL, out, &counts));
    assert_int_equal(counts.pairs, 2);
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    assert_ok(file_read(out, 1 << 20, &text, &size));
    assert_string_equal(text, "{\"q\":\"Say \\\"hi\\\"\",\"a\":\"caf\xc3\xa9\"}\n"
                              "{\"q\":\"caf\xc3\xa9\",\"a\":\"Bye\"}\n");
    const char *again = files_name(files, "again.jsonl");
    assert_ok(dialogue_write(&out, 1, FORMAT_PAIRS, again, &counts));
    assert_int_equal(counts.pairs, 2);
    files_write(out, "{\"q\": \"\", \"a\": \"b\"}\n", 19);
    assert_fails(dialogue_write(&out, 1, FORMAT_PAIRS, again, &counts), 1, "no pair has text on both sides");
}

static void count_pairs(void **state) {
    const char *paths[] = {CORNELL "/movie_lines.first669.txt", CORNELL "/movie_conversations.txt.gz"};
    if (!path_exists(paths[0]) || !path_exists(paths[1])) skip();
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(example_set_done) ExampleSet set = {0};
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    DataSpec spec = {
        .paths = paths, .path_count = 2, .format = FORMAT_CORNELL, .seq = 512, .encoder = tokenizer};
    assert_ok(example_set_read(&set, &spec));
    assert_int_equal(set.cornell.conversations, 83097);
    assert_int_equal(set.cornell.lines, 669);
    assert_true(set.count > 300 && set.count < 669 && set.cornell.missing > 300000);
    CLEANUP(mem_freep) char *text = NULL;
    assert_ok(example_set_text(&set, &text));
    assert_non_null(strstr(text, " missing utterances; usable pairs: "));
}

/* ---- sequences, one token per byte ---- */

static void open_rows(Files *files, const char *name, const char *text, DataFormat format,
                      Tokenizer *tokenizer, Dataset **ret_data) {
    files->count = 0;
    files_add_text(files, name, text);
    DataSpec spec = files_spec(files, T);
    static const char *const names[] = {"neg", "pos", "so"};
    spec.format = format;
    spec.task = format == FORMAT_RECORDS ? TASK_CLASSIFY : TASK_MLM;
    spec.next_sentence = format != FORMAT_RECORDS;
    spec.no_masks = true;
    spec.encoder = tokenizer;
    spec.label_names = names;
    if (strstr(text, "other")) spec.pair_field = "other";
    assert_ok(dataset_open(ret_data, &spec));
}

/* A sequence as text: < for [CLS], | for [SEP], . for padding. */
static const char *row_text(const HostBatch *batch, int64_t b, char *out) {
    for (int64_t t = 0; t < T; t++) {
        int32_t token = batch->tokens[b * T + t];
        out[t] = token == BYTE_CLS ? '<' : token == BYTE_SEP ? '|' : token == BYTE_PAD ? '.' : (char)token;
    }
    out[T] = 0;
    return out;
}

static void test_records(void **state) {
    Files *files = *state;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(dataset_freep) Dataset *data = NULL, *two = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    char text[T + 1];
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    assert_ok(host_batch_new(&batch, 2, T));
    open_rows(files, "r.csv", "text,label\ngood,pos\n,neg\n\"a text that is longer than it may be\",2\n",
              FORMAT_RECORDS, tokenizer, &data);
    assert_int_equal(dataset_count(data), 3);
    assert_ok(dataset_fill(data, 0, false, batch));
    assert_string_equal(row_text(batch, 0, text), "<good|..................");
    assert_string_equal(row_text(batch, 1, text), "<|......................");
    assert_int_equal(batch->classes[0], 1);
    assert_int_equal(batch->classes[1], 0);
    assert_int_equal(batch->lens[0], 6);
    assert_int_equal(batch->lens[1], 2);
    assert_int_equal(batch->loss_count[LOSS_CLASSIFY], 2);
    assert_ok(dataset_fill(data, 2, false, batch));
    assert_string_equal(row_text(batch, 0, text), "<a text that is longer |");
    assert_int_equal(batch->classes[0], 2);
    CLEANUP(mem_freep) char *warning = NULL;
    assert_ok(dataset_warning(data, &warning));
    assert_null(warning);
    open_rows(files, "p.tsv", "text\tlabel\tother\ngood\tso\tbad\nlong text here\tneg\tand another one\n",
              FORMAT_RECORDS, tokenizer, &two);
    assert_ok(dataset_fill(two, 0, false, batch));
    assert_string_equal(row_text(batch, 0, text), "<good|bad|..............");
    assert_string_equal(row_text(batch, 1, text), "<long text |and another|");
    assert_int_equal(batch->types[5], 0);
    assert_int_equal(batch->types[6], 1);
    assert_int_equal(batch->types[9], 1);
    assert_int_equal(batch->types[10], 0);
}

/* How many tokens of two texts remain, as the package tokenizers truncates them; T is 24, 21 of it text. */
static void test_truncation(void **state) {
    static const int cases[][4] = {{22, 23, 10, 11}, {23, 22, 11, 10}, {22, 22, 10, 11}, {40, 30, 11, 10},
                                   {30, 40, 10, 11}, {20, 2, 19, 2},   {2, 20, 2, 19},   {0, 30, 0, 21},
                                   {30, 0, 21, 0},   {1, 30, 1, 20},   {30, 1, 20, 1},   {0, 0, 0, 0}};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    assert_ok(host_batch_new(&batch, 1, T));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CLEANUP(dataset_freep) Dataset *data = NULL;
        char rows[160] = "text\tother\tlabel\n", expected[T + 1], text[T + 1];
        size_t at = strlen(rows);
        const int *n = cases[i];
        memset(rows + at, 'a', (size_t)n[0]);
        rows[at + (size_t)n[0]] = '\t';
        memset(rows + at + n[0] + 1, 'b', (size_t)n[1]);
        strcpy(rows + at + n[0] + 1 + n[1], "\tpos\n");
        open_rows(*state, "t.tsv", rows, FORMAT_RECORDS, tokenizer, &data);
        assert_ok(dataset_fill(data, 0, false, batch));
        memset(expected, '.', T);
        expected[T] = 0;
        expected[0] = '<';
        memset(expected + 1, 'a', (size_t)n[2]);
        expected[1 + n[2]] = '|';
        memset(expected + 2 + n[2], 'b', (size_t)n[3]);
        expected[2 + n[2] + n[3]] = '|';
        assert_string_equal(row_text(batch, 0, text), expected);
        assert_int_equal(batch->lens[0], 3 + n[2] + n[3]);
    }
}

static void test_pairs(void **state) {
    Files *files = *state;
    enum { PAIRS = 200 };
    static char text[PAIRS * 48];
    size_t size = 0;
    for (int i = 0; i < PAIRS; i++)
        size += (size_t)sprintf(text + size, "{\"q\": \"q%d\", \"a\": \"%s%d\"}\n", i, i % 10 ? "a" : "same",
                                i % 10 ? i : 0);
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    assert_ok(host_batch_new(&batch, 1, T));
    open_rows(files, "p.jsonl", text, FORMAT_PAIRS, tokenizer, &data);
    assert_int_equal(dataset_count(data), PAIRS);
    int random = 0, seen[PAIRS] = {0};
    for (int i = 0; i < 10 * PAIRS; i++) {
        char row[T + 1], answer[16];
        int q = -1;
        assert_ok(dataset_fill(data, (uint64_t)i, true, batch));
        assert_int_equal(sscanf(row_text(batch, 0, row), "<q%d|%15[^|]|", &q, answer), 2);
        seen[q]++;
        int a = -1;
        bool right = q % 10 ? sscanf(answer, "a%d", &a) == 1 && a == q : !strcmp(answer, "same0");
        assert_int_equal(right, !batch->nsp[0]);
        assert_int_equal(batch->pick_count, 0);
        random += batch->nsp[0];
    }
    for (int i = 0; i < PAIRS; i++) assert_int_equal(seen[i], 10);
    assert_true(abs(random - 5 * PAIRS) < 4 * sqrt(2.5 * PAIRS));
}

/* Gives a byte tokenizer the templates "<end> A" and `pair`. */
static void change_templates(Tokenizer *tokenizer, const TemplatePiece *pair, size_t count) {
    CLEANUP(token_template_done) TokenTemplate one = {0};
    CLEANUP(token_template_done) TokenTemplate two = {0};
    assert_ok(token_template_add(&one, (TemplatePiece){PIECE_TOKEN, BYTE_END, 0}));
    assert_ok(token_template_add(&one, (TemplatePiece){PIECE_FIRST, 0, 0}));
    for (size_t i = 0; i < count; i++) assert_ok(token_template_add(&two, pair[i]));
    assert_ok(post_processor_set_template(tokenizer, &one, &two, "test"));
}

/* Records follow the tokenizer's post-processor; pairs for pretraining do not. */
static void test_post_processor(void **state) {
    Files *files = *state;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(dataset_freep) Dataset *data = NULL, *two = NULL, *pretrain = NULL, *refused = NULL;
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    const TemplatePiece pair[] = {
        {PIECE_SECOND, 0, 0}, {PIECE_TOKEN, BYTE_SEP, 1}, {PIECE_FIRST, 0, 1}, {PIECE_TOKEN, BYTE_SEP, 0}};
    const char *rows = "text\tlabel\tother\ngood\tso\tbad\nlong text here\tneg\tand another one\n";
    char text[T + 1];
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    change_templates(tokenizer, pair, 4);
    assert_ok(host_batch_new(&batch, 2, T));
    open_rows(files, "one.csv", "text,label\ngood,pos\n\"a text that is longer than it may be\",2\n",
              FORMAT_RECORDS, tokenizer, &data);
    assert_ok(dataset_fill(data, 0, false, batch));
    assert_int_equal(batch->tokens[0], BYTE_END);
    assert_int_equal(batch->lens[0], 5);
    assert_int_equal(batch->lens[1], T);
    assert_int_equal(batch->tokens[2 * T - 1], 't');
    open_rows(files, "two.tsv", rows, FORMAT_RECORDS, tokenizer, &two);
    assert_ok(dataset_fill(two, 0, false, batch));
    assert_string_equal(row_text(batch, 0, text), "bad|good|...............");
    assert_string_equal(row_text(batch, 1, text), "and another|long text h|");
    const int32_t types[] = {0, 0, 0, 1, 1, 1, 1, 1, 0, 0};
    assert_memory_equal(batch->types, types, sizeof types);
    open_rows(files, "pairs.jsonl", "{\"q\": \"a\", \"a\": \"b\"}\n{\"q\": \"c\", \"a\": \"d\"}\n",
              FORMAT_PAIRS, tokenizer, &pretrain);
    assert_ok(dataset_fill(pretrain, 0, false, batch));
    assert_int_equal(batch->tokens[0], BYTE_CLS);
    assert_int_equal(batch->tokens[2], BYTE_SEP);
    assert_int_equal(batch->lens[0], 5);

    files->count = 0;
    files_add_text(files, "refused.tsv", rows);
    DataSpec spec = files_spec(files, T);
    spec.format = FORMAT_RECORDS;
    spec.encoder = tokenizer;
    spec.task = TASK_CLASSIFY;
    spec.pair_field = "other";
    spec.types = 1;
    assert_fails(dataset_open(&refused, &spec), 2, "assigns token type 1, but the model has only 1");
    spec.types = 2;
    spec.seq = 3;
    assert_fails(dataset_open(&refused, &spec), 2, "the sequence length is 3; expected at least 4");
    change_templates(tokenizer, pair, 2);
    assert_fails(dataset_open(&refused, &spec), 2, "uses the first text of a pair 0 times; expected once");
}

static void test_wrong(void **state) {
    Files *files = *state;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(dataset_freep) Dataset *data = NULL;
    assert_ok(tokenizer_new_bytes(&tokenizer, true));
    files->count = 0;
    files_add_text(files, "w.csv", "text,label\na,1\nb,maybe\n");
    DataSpec spec = files_spec(files, T);
    spec.format = FORMAT_RECORDS;
    spec.encoder = tokenizer;
    spec.task = TASK_CLASSIFY;
    assert_fails(dataset_open(&data, &spec), 1, "line 3: unknown label 'maybe'; the model has 3 labels");
    spec.task = TASK_LM;
    assert_fails(dataset_open(&data, &spec), 2, "which require BERT and --task classify");
    spec.format = FORMAT_PAIRS;
    spec.task = TASK_MLM;
    spec.special.cls = -1;
    assert_fails(dataset_open(&data, &spec), 2, "lacks [CLS]");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cornell),        cmocka_unit_test(count_pairs),
                                       cmocka_unit_test(test_written),        cmocka_unit_test(test_records),
                                       cmocka_unit_test(test_truncation),     cmocka_unit_test(test_pairs),
                                       cmocka_unit_test(test_post_processor), cmocka_unit_test(test_wrong)};
    return cmocka_run_group_tests(tests, files_setup, files_teardown);
}
