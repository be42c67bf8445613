/* `weft generate` with tokenizers: where they are found, streaming, prompts, and when generation ends.
 *
 * The model is trained to memorize one sentence, so the expected output is known. The sentence has characters
 * of two to four bytes, which BPE splits across tokens. */
#include <math.h>

#include "corpus.h"

#include "comm/mpi.h"

#define SENTENCE                                                                                             \
    "Gr\xC3\xBC\xC3\x9F\x65 aus K\xC3\xB6ln: 5 \xE2\x82\xAC f\xC3\xBCr 3 \xF0\x9F\x99\x82 und mehr.\n"
#define SHAPE                                                                                                \
    "--model gpt2-tiny --layers 1 --hidden 32 --heads 2 --seq 48 --batch 8 --threads 1 --val-fraction 0 "    \
    "--quiet "

static void assert_line(const char *line, const char *expected) {
    Ran ran = shell(line);
    if (ran.code) fail_msg("%s: %s", line, ran.err);
    assert_string_equal(ran.out, expected);
    ran_done(&ran);
}

static void assert_line_fails(const char *line, int code, const char *part) {
    Ran ran = shell(line);
    assert_contains(ran.err, part);
    assert_int_equal(ran.code, code);
    assert_string_equal(ran.out, "");
    assert_ptr_equal(strchr(ran.err, '\n'), ran.err + strlen(ran.err) - 1); /* exactly one line */
    ran_done(&ran);
}

static json_t *line_json(const char *line) {
    Ran ran = shell(line);
    if (ran.code) fail_msg("%s: %s", line, ran.err);
    json_t *json = json_loads(ran.out, JSON_ALLOW_NUL, NULL); /* a model may generate any byte */
    assert_non_null(json);
    ran_done(&ran);
    return json;
}

static const json_t *sample_of(const json_t *json, size_t index) {
    const json_t *sample = json_array_get(json_object_get(json, "samples"), index);
    assert_non_null(sample);
    return sample;
}

static const char *text_in(const json_t *sample, const char *key) {
    const char *text = json_string_value(json_object_get(sample, key));
    return text ? text : "(none)";
}

static int setup(void **state) {
    if (corpus_setup(state) || setenv("WEFT", WEFT_BINARY, 1)) return -1;
    FILE *file = fopen(at("text.txt"), "w");
    for (int i = 0; i < 300; i++) fputs(SENTENCE, file);
    fclose(file);
    put_sentences("words.txt", 400, 1, false);
    put_wordpiece("bert");
    Ran ran = shell("$WEFT tokenizer train --vocab 262 --data text.txt --out tok --quiet && "
                    "$WEFT tokenizer train --vocab 300 --data words.txt --out other --quiet && "
                    "$WEFT train --tokenizer tok --data text.txt " SHAPE
                    "--steps 300 --lr 1e-2 --dropout 0 --out run && "
                    "mkdir bare && cp run/latest/config.json run/latest/model.safetensors bare");
    if (ran.code) fprintf(stderr, "%s", ran.err);
    int code = ran.code;
    ran_done(&ran);
    return code;
}

/* ---- text ---- */

static void finds_the_models_tokenizer(void **state) {
    static const char learned[] = "Gr\xC3\xBC\xC3\x9F\x65 aus K\xC3\xB6ln: 5 \xE2\x82\xAC f\xC3\xBCr";
    const char *const models[] = {"run", "run/latest", "bare --tokenizer tok", "bare --tokenizer run/latest",
                                  "bare --tokenizer tok/tokenizer.json"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char line[512];
        snprintf(line, sizeof line, "$WEFT generate --model %s --prompt Gr --greedy --stop ' 3'", models[i]);
        Ran ran = shell(line);
        if (ran.code) fail_msg("%s: %s", line, ran.err);
        assert_memory_equal(ran.out, learned, sizeof learned - 1);
        assert_string_equal(ran.out + sizeof learned - 1, "\n");
        ran_done(&ran);
    }
}

/* A converted model keeps its tokenizer and generates the same text. */
static void conversion_keeps_the_tokenizer(void **state) {
    assert_line(
        "$WEFT convert --model run --out again "
        ">/dev/null; cd again && LC_ALL=C ls tokenizer.json tokenizer_config.json vocab.json merges.txt",
        "merges.txt\ntokenizer.json\ntokenizer_config.json\nvocab.json\n");
    assert_line("$WEFT generate --model again --prompt 'Gr' --greedy --stop ' aus'",
                "Gr\xC3\xBC\xC3\x9F\x65\n");
}

static bool is_utf8(const char *text, size_t size) {
    json_t *json = json_stringn(text, size); /* fails unless the text is valid UTF-8 */
    json_decref(json);
    return json != NULL;
}

/* Checks that every write to the pipe consists of complete characters. Returns the total size. */
static size_t read_writes(const char *arguments, char *all, size_t capacity, int *writes) {
    char line[1024];
    snprintf(line, sizeof line, "cd '%s' && exec \"$WEFT\" generate --threads 1 %s 2>/dev/null", corpus_root,
             arguments);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    size_t size = 0;
    for (ssize_t got; (got = read(fileno(pipe), all + size, capacity - size)) > 0; size += (size_t)got) {
        assert_true(is_utf8(all + size, (size_t)got));
        ++*writes;
    }
    assert_int_equal(pclose(pipe), 0);
    return size;
}

static void streams_complete_characters(void **state) {
    static const char *const arguments[] = {
        "--model run --prompt Gr --greedy",
        "--model run --prompt Gr --temperature 5 --ignore-end --seed 1",
        "--model run --prompt Gr --temperature 5 --ignore-end --seed 2 --stop xyz",
        "--model run --prompt-ids 159 --temperature 5 --ignore-end --seed 3",
        "--model run --temperature 100 --ignore-end --seed 4",
    };
    int writes = 0;
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++) {
        char all[4096], whole[4096], line[512];
        int one = 0;
        size_t size = read_writes(arguments[i], all, sizeof all, &writes);
        snprintf(line, sizeof line, "--no-stream %s", arguments[i]);
        assert_int_equal(read_writes(line, whole, sizeof whole, &one), size);
        assert_memory_equal(all, whole, size);
        snprintf(line, sizeof line, "$WEFT generate --threads 1 --json %s", arguments[i]);
        json_t *json = line_json(line);
        const json_t *text = json_object_get(sample_of(json, 0), "text");
        assert_int_equal(json_string_length(text) + 1, size);
        assert_memory_equal(json_string_value(text), all, size - 1);
        json_decref(json);
    }
    assert_true(writes >= 10);
}

static void special_tokens(void **state) {
    assert_line("$WEFT generate --model run --prompt '<|endoftext|>Gr' --greedy --stop ' aus'",
                "Gr\xC3\xBC\xC3\x9F\x65\n");
    assert_line("$WEFT generate --model run --prompt '<|endoftext|>Gr' --greedy --stop ' aus' "
                "--no-skip-special-tokens",
                "<|endoftext|>Gr\xC3\xBC\xC3\x9F\x65\n");
    json_t *json = line_json("$WEFT generate --model run --prompt '<|endoftext|>Gr' --max-tokens 1 --json");
    const json_t *ids = json_object_get(sample_of(json, 0), "ids");
    assert_int_equal(json_integer_value(json_array_get(ids, 0)), 0);
    json_decref(json);
}

/* A reader that has enough, such as `head`, is not an error, whether it ends before or after the first write.
 */
static void reader_ends(void **state) {
    static const char *const readers[] = {"{ exec <&-; sleep 0.5; }", "head -1"};
    for (int i = 0; i < 2; i++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "bash -c \"set -o pipefail; '$WEFT' generate --model run --prompt Gr --samples 5 %s | %s >out\"",
            i ? "--no-stream" : "", readers[i]);
        Ran ran = shell(line);
        assert_int_equal(ran.code, 0);
        assert_null(strstr(ran.err, "error"));
        ran_done(&ran);
    }
}

/* No file that is opened takes the place of a closed stream: the model's own were read as the prompt, and
 * progress went to metrics.jsonl. */
static void closed_streams(void **state) {
    assert_line_fails("$WEFT generate --model run --prompt - <&-", 1, "standard input: cannot read");
    Ran ran = shell("$WEFT train --data words.txt " SHAPE "--no-quiet --steps 4 --eval-every 0 --out mute "
                    "<&- >&- 2>&-; head -c 8 mute/metrics.jsonl");
    assert_string_equal(ran.out, "{\"step\":");
    ran_done(&ran);
}

/* A GPT-2 model with a WordPiece tokenizer: tokens are joined into words as in BERT. */
static void wordpiece(void **state) {
    assert_runs(shell("$WEFT train --tokenizer bert --data words.txt " SHAPE "--steps 5 --out words"));
    assert_line(
        "$WEFT generate --model words --prompt 'The QUICK fox, jumps' --greedy --max-tokens 1 --json | "
        "grep -o ' \"text\": \"the quick fox jumps'",
        " \"text\": \"the quick fox jumps\n");
    assert_line("$WEFT generate --model words --prompt 'The QUICK fox, jumps' --greedy --max-tokens 1 "
                "--no-skip-special-tokens | cut -c-37",
                "[CLS] the quick fox [UNK] jumps [SEP]\n");
    assert_line("$WEFT generate --model words --prompt 'The QUICK fox, jumps' --greedy --max-tokens 1 "
                "--no-skip-special-tokens --no-add-special-tokens | cut -c-25",
                "the quick fox [UNK] jumps\n");
}

/* ---- end of generation ---- */

static void stops_at_strings(void **state) {
    static const struct {
        const char *stops, *new_text, *stop;
    } cases[] = {
        {"--stop '5 \xE2\x82\xAC f'", "\xC3\xBC\xC3\x9F\x65 aus K\xC3\xB6ln: ", "5 \xE2\x82\xAC f"},
        {"--stop mehr --stop '\xE2\x82\xAC'", "\xC3\xBC\xC3\x9F\x65 aus K\xC3\xB6ln: 5 ", "\xE2\x82\xAC"},
        {"--stop '\xC3\xBC'", "", "\xC3\xBC"},
        {"--stop Gr\xC3\xBC --stop 'n: 5 x' --stop 'n: 5'", "\xC3\xBC\xC3\x9F\x65 aus K\xC3\xB6l", "n: 5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[512], expected[512];
        snprintf(line, sizeof line, "$WEFT generate --model run --prompt Gr --greedy %s --json",
                 cases[i].stops);
        json_t *json = line_json(line);
        const json_t *sample = sample_of(json, 0);
        assert_string_equal(text_in(sample, "new_text"), cases[i].new_text);
        assert_string_equal(text_in(sample, "stop"), cases[i].stop);
        assert_string_equal(text_in(sample, "reason"), "stop");
        json_decref(json);
        snprintf(line, sizeof line, "$WEFT generate --model run --prompt Gr --greedy %s", cases[i].stops);
        snprintf(expected, sizeof expected, "Gr%s\n", cases[i].new_text);
        assert_line(line, expected);
    }
    assert_line_fails("$WEFT generate --model run --prompt x --stop ''", 2, "stop string 1 is empty");
    assert_line_fails("$WEFT generate --model run --prompt x --stop a --stop \"$(printf '\\303')\"", 2,
                      "--stop: expected TEXT in UTF-8");
}

/* Each sample ends independently, for its own reason. */
static void samples_end_independently(void **state) {
    json_t *json = line_json("$WEFT generate --model run --prompt Gr --prompt ' 3' --samples 2 --greedy "
                             "--max-tokens 20 --stop '\xE2\x82\xAC' --stop und --json");
    static const char *const texts[] = {"Gr\xC3\xBC\xC3\x9F\x65 aus K\xC3\xB6ln: 5 ", " 3 \xF0\x9F\x99\x82 "};
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(text_in(sample_of(json, i), "text"), texts[i / 2]);
        assert_string_equal(text_in(sample_of(json, i), "reason"), "stop");
    }
    json_decref(json);
    json = line_json(
        "$WEFT generate --model run --prompt Gr --prompt ' 3' --greedy --max-tokens 5 --stop xy --json");
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(text_in(sample_of(json, i), "reason"), "length");
        assert_string_equal(text_in(sample_of(json, i), "stop"), "(none)");
    }
    json_decref(json);
}

/* Like transformers, generation stops at the end tokens of generation_config.json, whatever config.json
 * says. */
static void ends_by_generation_config(void **state) {
    json_t *json =
        line_json("cp -r bare ended && $WEFT generate --model ended --tokenizer tok --prompt Gr --greedy "
                  "--max-tokens 9 --json");
    int third = (int)json_integer_value(json_array_get(json_object_get(sample_of(json, 0), "new_ids"), 2));
    json_decref(json);
    static const char *const forms[] = {"%d", "[%d]", "[7, %d]"};
    for (int i = 0; i < 3; i++) {
        char form[64], text[128];
        snprintf(form, sizeof form, "{\"eos_token_id\": %s}", forms[i]);
        snprintf(text, sizeof text, form, third);
        put_text("ended/generation_config.json", text);
        json = line_json(
            "$WEFT generate --model ended --tokenizer tok --prompt Gr --greedy --max-tokens 9 --json");
        assert_string_equal(text_in(sample_of(json, 0), "reason"), "end");
        assert_int_equal(json_array_size(json_object_get(sample_of(json, 0), "new_ids")), 3);
        json_decref(json);
    }
    json = line_json(
        "$WEFT generate --model ended --tokenizer tok --prompt Gr --greedy --max-tokens 9 --ignore-end "
        "--json");
    assert_string_equal(text_in(sample_of(json, 0), "reason"), "length");
    json_decref(json);
    put_text("ended/generation_config.json", "{\"bos_token_id\": 39, \"eos_token_id\": null}");
    json = line_json("$WEFT generate --model ended --tokenizer tok --greedy --max-tokens 9 --json");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(sample_of(json, 0), "ids"), 0)), 39);
    json_decref(json);
    put_text("ended/generation_config.json", "{\"eos_token_id\": \"x\"}");
    assert_line_fails("$WEFT generate --model ended --prompt-ids 1", 1,
                      "generation_config.json: 'eos_token_id'");
    put_text("ended/generation_config.json", "[");
    assert_line_fails("$WEFT generate --model ended --prompt-ids 1", 1, "generation_config.json");
}

/* ---- prompts ---- */

static void prompt_sources(void **state) {
    static const char expected[] = "Gr\xC3\xBC\xC3\x9F\x65\n";
    put_text("start.txt", "Gr");
    assert_line("$WEFT generate --model run --prompt-file start.txt --greedy --stop ' aus'", expected);
    assert_line("printf Gr | $WEFT generate --model run --prompt-file - --greedy --stop ' aus'", expected);
    assert_line("printf Gr | $WEFT generate --model run --prompt - --greedy --stop ' aus'", expected);
    assert_line_fails("printf Gr | $WEFT generate --model run --prompt - --prompt-file -", 2,
                      "only one prompt");
    assert_line_fails("$WEFT generate --model run --prompt-file absent.txt", 1, "absent.txt");
}

/* With --prompts and --json, each line of output is a sample. Neither order nor text depends on batches. */
static void prompts_from_a_file(void **state) {
    put_text("lines.txt", "Gr\n 3\nund mehr.\n\nGr\n");
    put_text("lines.jsonl", "\"Gr\"\n{\"prompt\": \" 3\"}\n\"und mehr.\"\n\"\"\n\"Gr\"\n");
    static const char *const sources[] = {"lines.txt", "lines.txt --batch 1", "lines.txt --batch 3",
                                          "lines.jsonl", "- <lines.txt"};
    CLEANUP(mem_freep) char *first = NULL;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "$WEFT generate --model run --samples 2 --max-tokens 8 --json --seed 4 --prompts %s",
                 sources[i]);
        Ran ran = shell(line);
        assert_int_equal(ran.code, 0);
        if (first) assert_string_equal(ran.out, first);
        if (!first) first = strdup(ran.out);
        ran_done(&ran);
    }
    int64_t at = 0;
    for (char *rest = first, *line; (line = strsep(&rest, "\n")) && *line; at++) {
        json_t *sample = json_loads(line, 0, NULL), *whole;
        char command[256];
        assert_int_equal(json_integer_value(json_object_get(sample, "index")), at / 2);
        assert_int_equal(json_integer_value(json_object_get(sample, "sample")), at % 2);
        if (at < 6) { /* the fourth prompt is empty, and the fifth repeats the first */
            static const char *const prompts[] = {"Gr", " 3", "und mehr."};
            snprintf(command, sizeof command,
                     "$WEFT generate --model run --samples 2 --max-tokens 8 --json --seed 4 --prompt '%s'",
                     prompts[at / 2]);
            whole = line_json(command);
            assert_true(json_equal(json_object_get(sample, "ids"),
                                   json_object_get(sample_of(whole, (size_t)at % 2), "ids")));
            json_decref(whole);
        }
        json_decref(sample);
    }
    assert_int_equal(at, 10);
    assert_line("$WEFT generate --model run --greedy --max-tokens 1 --prompts lines.txt | grep ===",
                "=== prompt 1 of 5 ===\n=== prompt 2 of 5 ===\n=== prompt 3 of 5 ===\n=== prompt 4 of 5 ===\n"
                "=== prompt 5 of 5 ===\n");
    put_text("empty.txt", "");
    assert_line_fails("$WEFT generate --model run --prompts empty.txt", 2, "empty.txt has no prompts");
    put_text("bad.jsonl", "\"a\"\n{}\n");
    assert_line_fails("$WEFT generate --model run --prompts bad.jsonl", 2, "bad.jsonl, line 2");
    assert_line_fails("$WEFT generate --model bare --prompts lines.txt", 2,
                      "lines.txt, line 1: text needs a tokenizer");
}

/* The log probabilities are those of the model, whatever is sampled: their sum is the loss of `weft eval`. */
static void log_probabilities(void **state) {
    static const char *const settings[] = {"--greedy", "--seed 3 --temperature 3",
                                           ("--seed 5 --temperature 2 --top-k 20 --repetition-penalty 1.5 "
                                            "--logit-bias 7:2")};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        char line[512];
        snprintf(line, sizeof line,
                 "$WEFT generate --model run --prompt-ids 39 --max-tokens 40 --ignore-end --json --logprobs "
                 "--top-logprobs 3 %s",
                 settings[s]);
        CLEANUP(json_decrefp) json_t *json = line_json(line);
        const json_t *sample = sample_of(json, 0), *list = json_object_get(sample, "logprobs");
        const json_t *ids = json_object_get(sample, "ids");
        uint16_t tokens[64];
        double sum = 0;
        assert_int_equal(json_array_size(ids), 41);
        assert_int_equal(json_array_size(list), 40);
        for (size_t i = 0; i < 41; i++) tokens[i] = (uint16_t)json_integer_value(json_array_get(ids, i));
        for (size_t i = 0; i < 40; i++) {
            const json_t *token = json_array_get(list, i), *top = json_object_get(token, "top");
            double logprob = json_number_value(json_object_get(token, "logprob")), last = 0;
            sum += logprob;
            assert_int_equal(json_integer_value(json_object_get(token, "id")), tokens[i + 1]);
            assert_int_equal(json_array_size(top), 3);
            for (size_t t = 0; t < 3; t++) {
                const json_t *other = json_array_get(top, t);
                double value = json_number_value(json_object_get(other, "logprob"));
                assert_true(value <= last);
                assert_true(t > 0 || logprob <= value);
                if (json_integer_value(json_object_get(other, "id")) == tokens[i + 1])
                    assert_true(value == logprob);
                last = value;
            }
        }
        put_file("tokens.u16", tokens, 41 * sizeof *tokens);
        CLEANUP(json_decrefp)
        json_t *loss = line_json("$WEFT eval --model run --data tokens.u16 --seq 41 --json");
        assert_int_equal(json_integer_value(json_object_get(loss, "tokens")), 40);
        assert_true(fabs(json_number_value(json_object_get(loss, "nll")) + sum) < 1e-4 * fabs(sum));
    }
    CLEANUP(json_decrefp)
    json_t *json =
        line_json("$WEFT generate --model run --prompt Gr --greedy --max-tokens 4 --json --logprobs");
    const json_t *list = json_object_get(sample_of(json, 0), "logprobs");
    assert_string_equal(text_in(json_array_get(list, 0), "text"), "\xC3\xBC");
    assert_null(json_object_get(json_array_get(list, 0), "top"));
    assert_line_fails("$WEFT generate --model run --prompt x --logprobs", 2, "--logprobs needs --json");
    Ran ran = shell("$WEFT generate --model run --prompt x --top-logprobs 2 --json");
    assert_contains(ran.err, "--top-logprobs needs --logprobs");
    ran_done(&ran);
    assert_ran(shell("$WEFT generate --model run --prompt x --logprobs --beams 2 --json"), 2, err,
               "cannot be combined with --beams");
}

static void mismatched_options(void **state) {
    assert_line_fails("$WEFT generate --model run --tokenizer other --prompt x", 2,
                      "the tokenizer other (290 tokens) does not match the model ");
    assert_line_fails("$WEFT generate --model run --tokenizer other --prompt-ids 1", 2,
                      "whose vocabulary has 262");
    assert_line_fails("$WEFT generate --model run --tokenizer bytes --prompt x --model golden", 1, "golden");
    assert_line_fails("$WEFT generate --model run --tokenizer absent --prompt x", 1, "absent");
    assert_line_fails("$WEFT generate --model bare --prompt x", 2, "name a tokenizer with --tokenizer");
    assert_line_fails("$WEFT generate --model bare --prompt-ids 1 --stop x", 2, "--tokenizer");
    assert_line_fails("$WEFT generate --model bare --prompt-ids 1,,2", 2,
                      "expected token ids separated by commas, found ',2'");
    assert_line_fails("$WEFT generate --model bare --prompt-ids 1,", 2, "expected a token id after '1,'");
    /* Token ids need no tokenizer, not even an intact one. */
    assert_line(
        "cp -r bare broken && echo '{' >broken/tokenizer.json && "
        "$WEFT generate --model broken --prompt-ids 1,2 --greedy --max-tokens 2 2>note | cut -d' ' -f1-2",
        "1 2\n");
    assert_line("grep -c 'tokens are shown as ids' broken/../note", "1\n");
    assert_line_fails("$WEFT generate --model broken --prompt x", 1, "tokenizer.json");
}

/* Padding tokens of the vocabulary have no text. */
static void padded_vocabularies(void **state) {
    Ran ran =
        shell("$WEFT train --tokenizer tok --data text.txt --vocab 320 " SHAPE "--steps 1 --out padded");
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    json_t *json = line_json("$WEFT generate --model padded --prompt Gr --temperature 1000 --max-tokens 40 "
                             "--ignore-end --json");
    const json_t *ids = json_object_get(sample_of(json, 0), "ids"), *id;
    size_t index, beyond = 0;
    json_array_foreach(ids, index, id) beyond += json_integer_value(id) >= 262;
    assert_true(beyond > 0);
    assert_memory_equal(text_in(sample_of(json, 0), "text"), "Gr", 2);
    json_decref(json);
}

/* ---- several ranks ---- */

/* The text of one rank, streamed and as JSON lines, from one rank only. The prompt is longer than the
 * context. */
static void ranks_divide_the_cache(void **state) {
    static const char *const options[] = {"--greedy",
                                          "--seed 5 --samples 3",
                                          "--beams 3 --samples 2",
                                          "--greedy --kv int8",
                                          "--prompts lines.txt --greedy --json",
                                          "--temperature 1000 --ignore-end" /* control characters */};
    if (!mpi_built()) skip();
    assert_line("head -c 400 text.txt > long.txt && printf 'Gr\\n5\\n' > lines.txt", "");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "$WEFT generate --model run --prompt-file long.txt --max-tokens 30 %s --threads 1 ",
                 options[i]);
        Ran one = shell(line);
        strcat(line, "--cp 2");
        Ran two = shell(line);
        if (one.code || two.code) fail_msg("%s: %s%s", line, one.err, two.err);
        assert_string_equal(one.out, two.out);
        assert_int_equal(strstr(one.err, "the model sees") != NULL,
                         strstr(two.err, "the model sees") != NULL);
        ran_done(&one);
        ran_done(&two);
    }
}

static void ranks_refuse_options(void **state) {
    static const char *const refused[][2] = {
        {"--cp 2 --interactive", "--interactive cannot be combined with --cp"},
        {"--cp 2 --prompt -", "--cp cannot be combined with a prompt from standard input (-)"},
        {"--cp 2 --prompts -", "--cp cannot be combined with a prompt from standard input (-)"},
        {"--cp 2 --prompt Gr --device cuda", "--cp needs --device cpu"},
        {"--cp 0 --prompt Gr", "--cp"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char line[256];
        snprintf(line, sizeof line, "$WEFT generate --model run %s </dev/null", refused[i][0]);
        assert_line_fails(line, 2, refused[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_models_tokenizer),
        cmocka_unit_test(conversion_keeps_the_tokenizer),
        cmocka_unit_test(streams_complete_characters),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(reader_ends),
        cmocka_unit_test(closed_streams),
        cmocka_unit_test(wordpiece),
        cmocka_unit_test(stops_at_strings),
        cmocka_unit_test(samples_end_independently),
        cmocka_unit_test(ends_by_generation_config),
        cmocka_unit_test(prompt_sources),
        cmocka_unit_test(prompts_from_a_file),
        cmocka_unit_test(log_probabilities),
        cmocka_unit_test(mismatched_options),
        cmocka_unit_test(padded_vocabularies),
        cmocka_unit_test(ranks_divide_the_cache),
        cmocka_unit_test(ranks_refuse_options),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
