/* weft tokenizer encode: converts text to token ids.
 *
 * The result may be large, so it is written directly from the list of ids, without a JSON tree. Everything is
 * encoded before the first byte is written, so that a failure leaves standard output empty. */
#include <string.h>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/tokenizer_input.h"

typedef struct EncodeArgs {
    const char *tokenizer, *file, *text, *pair;
    bool offsets, types, lines, add_special, plain;
} EncodeArgs;

/* clang-format off */
static const Option options[] = {
    {OPT_TEXT("tokenizer", EncodeArgs, tokenizer, "DIR"), .required = true,
     .help = "Tokenizer: a directory, one of its files (tokenizer.json, vocab.json, vocab.txt), or bytes."},
    {OPT_TEXT("file", EncodeArgs, file, "FILE"), .shown = "standard input",
     .help = "File to encode, byte for byte; - is standard input."},
    {OPT_TEXT("text", EncodeArgs, text, "TEXT"), .may_be_empty = true, .any_bytes = true, .help = "Text to encode."},
    {OPT_TEXT("pair", EncodeArgs, pair, "TEXT"), .may_be_empty = true, .any_bytes = true,
     .help = "Second text: encode the two as a pair, such as [CLS] A [SEP] B [SEP]."},
    {OPT_FLAG("lines", EncodeArgs, lines), .help = "Encode each line separately, without its newline."},
    {OPT_FLAG("offsets", EncodeArgs, offsets),
     .help = "Also print each token's text and byte offsets in the input (end exclusive)."},
    {OPT_FLAG("type-ids", EncodeArgs, types),
     .help = "Also print token types, on a second line or, with --offsets, as a column."},
    {OPT_FLAG("add-special-tokens", EncodeArgs, add_special), .fallback = "on",
     .help = "Do not add the special tokens of the tokenizer's post-processor, such as BERT's [CLS] and "
             "[SEP]."},
    {OPT_FLAG("plain", EncodeArgs, plain), .help = "Treat special tokens in the text as ordinary text."},
};
/* clang-format on */

/* The tokens of all texts, concatenated. */
typedef struct Encoded {
    TokenList list;
    size_t *ends; /* end of each text's tokens in the list */
    size_t count, capacity;
} Encoded;

static void encoded_done(Encoded *encoded) {
    token_list_done(&encoded->list);
    free(encoded->ends);
}

static Status encode_text(Encoder *encoder, const EncodeArgs *args, const char *text, size_t size,
                          Encoded *encoded) {
    TextView pair = {args->pair, args->pair ? strlen(args->pair) : 0};
    TRY(encoder_add_sequence(encoder, (TextView){text, size}, args->pair ? &pair : NULL, args->add_special,
                             &encoded->list));
    TRY(mem_grow(&encoded->ends, &encoded->capacity, encoded->count + 1, sizeof *encoded->ends));
    encoded->ends[encoded->count++] = encoded->list.count;
    return OK;
}

static Status encode_all(const EncodeArgs *args, const Tokenizer *tokenizer, const TextInput *input,
                         Encoded *encoded) {
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    EncodeOptions asked = {.plain = args->plain, .offsets = args->offsets, .types = args->types};
    TRY(encoder_new(&encoder, tokenizer, &asked));
    if (!args->lines) return encode_text(encoder, args, input->data, input->size, encoded);
    for (size_t at = 0; at < input->size;) {
        const char *line = input->data + at, *newline = memchr(line, '\n', input->size - at);
        size_t size = newline ? (size_t)(newline - line) : input->size - at;
        TRY(encode_text(encoder, args, line, size, encoded));
        at += size + 1;
    }
    return OK;
}

/* ---- writing ---- */

static void write_numbers(FILE *out, const int32_t *numbers, size_t start, size_t end, const char *between) {
    for (size_t i = start; i < end; i++) fprintf(out, "%s%d", i > start ? between : "", (int)numbers[i]);
}

static Status write_token(FILE *out, const Tokenizer *tokenizer, int32_t id) {
    size_t size;
    const char *token = tokenizer_token(tokenizer, id, &size);
    CLEANUP(mem_freep) char *text = NULL;
    TRY(text_to_utf8(token, size, &text, &size));
    CLEANUP(json_decrefp) json_t *json = json_stringn(text, size);
    if (!json || json_dumpf(json, out, JSON_ENCODE_ANY) != 0)
        return FAILED("cannot write a token: out of memory, or standard output is closed");
    return OK;
}

static Status write_object(FILE *out, const Tokenizer *tokenizer, const Encoded *encoded, size_t start,
                           size_t end, const EncodeArgs *args) {
    fputs("{\"ids\": [", out);
    write_numbers(out, encoded->list.ids, start, end, ", ");
    fputc(']', out);
    if (args->types) {
        fputs(", \"type_ids\": [", out);
        write_numbers(out, encoded->list.types, start, end, ", ");
        fputc(']', out);
    }
    if (args->offsets) {
        fputs(", \"offsets\": [", out);
        for (size_t i = start; i < end; i++)
            fprintf(out, "%s[%zu, %zu]", i > start ? ", " : "", encoded->list.offsets[i].start,
                    encoded->list.offsets[i].end);
        fputs("], \"tokens\": [", out);
        for (size_t i = start; i < end; i++) {
            if (i > start) fputs(", ", out);
            TRY(write_token(out, tokenizer, encoded->list.ids[i]));
        }
        fputc(']', out);
    }
    fputc('}', out);
    return OK;
}

static Status write_json(FILE *out, const Tokenizer *tokenizer, const Encoded *encoded,
                         const EncodeArgs *args) {
    if (!args->lines) {
        TRY(write_object(out, tokenizer, encoded, 0, encoded->list.count, args));
        fputc('\n', out);
        return OK;
    }
    fputs("{\"lines\": [", out);
    for (size_t i = 0, start = 0; i < encoded->count; start = encoded->ends[i++]) {
        fputs(i ? ",\n" : "\n", out);
        TRY(write_object(out, tokenizer, encoded, start, encoded->ends[i], args));
    }
    fputs("\n]}\n", out);
    return OK;
}

/* One line per token: id, type if requested, start, end, text; a blank line between texts. */
static Status write_table(FILE *out, const Tokenizer *tokenizer, const Encoded *encoded, bool types) {
    for (size_t i = 0, at = 0; i < encoded->count; i++) {
        if (i) fputc('\n', out);
        for (; at < encoded->ends[i]; at++) {
            TokenOffset offset = encoded->list.offsets[at];
            fprintf(out, "%d\t", (int)encoded->list.ids[at]);
            if (types) fprintf(out, "%d\t", (int)encoded->list.types[at]);
            fprintf(out, "%zu\t%zu\t", offset.start, offset.end);
            TRY(write_token(out, tokenizer, encoded->list.ids[at]));
            fputc('\n', out);
        }
    }
    return OK;
}

static Status run(Invocation *call, void *config, json_t **ret_result) {
    (void)ret_result;
    const EncodeArgs *args = config;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(open_tokenizer(&tokenizer, args->tokenizer));
    CLEANUP(text_input_done) TextInput input = {0};
    TRY(text_input_init(&input, "text", args->text, args->file));
    CLEANUP(encoded_done) Encoded encoded = {0};
    TRY(encode_all(args, tokenizer, &input, &encoded));
    if (call->json) return write_json(stdout, tokenizer, &encoded, args);
    if (args->offsets) return write_table(stdout, tokenizer, &encoded, args->types);
    for (size_t i = 0, start = 0; i < encoded.count; start = encoded.ends[i++]) {
        write_numbers(stdout, encoded.list.ids, start, encoded.ends[i], " ");
        putchar('\n');
        if (!args->types) continue;
        write_numbers(stdout, encoded.list.types, start, encoded.ends[i], " ");
        putchar('\n');
    }
    return OK;
}

const Command command_tokenizer_encode = {
    .name = "tokenizer encode",
    .summary = "convert text to token ids",
    .description =
        "Prints token ids separated by spaces, with the special tokens that the tokenizer's "
        "post-processor adds. With --json: {\"ids\": [...]}, with --type-ids also \"type_ids\", "
        "with --offsets also \"offsets\" and \"tokens\"; with --lines, {\"lines\": [...]} of such objects.",
    .positional = POSITIONAL("tokenizer", "text"),
    .config_size = sizeof(EncodeArgs),
    .groups = GROUPS(OPTION_GROUP("Text", options, 0)),
    .examples = {{"Encode a file, as JSON", "weft tokenizer encode --tokenizer gpt2 --file story.txt --json"},
                 {"Encode a pair of texts",
                  "weft tokenizer encode --tokenizer bert --text 'who?' --pair 'a cat' --type-ids"},
                 {"Encode piped text line by line",
                  "sort words | weft tokenizer encode --tokenizer bert --lines"}},
    .run = run,
};
