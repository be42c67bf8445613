/* weft tokenizer decode: converts token ids to text. */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/show.h"
#include "cli/tokenizer_input.h"

typedef struct DecodeArgs {
    const char *tokenizer, *ids, *file;
    bool skip_special;
} DecodeArgs;

/* clang-format off */
static const Option options[] = {
    {OPT_TEXT("tokenizer", DecodeArgs, tokenizer, "DIR"), .required = true,
     .help = "Tokenizer: a directory, one of its files (tokenizer.json, vocab.json, vocab.txt), or bytes."},
    {OPT_TEXT("ids", DecodeArgs, ids, "N,N,..."), .may_be_empty = true,
     .help = "Token ids, separated by spaces or commas, or as JSON."},
    {OPT_TEXT("file", DecodeArgs, file, "FILE"), .shown = "standard input",
     .help = "File with token ids; - is standard input."},
    {OPT_FLAG("skip-special-tokens", DecodeArgs, skip_special),
     .help = "Omit special tokens such as <|endoftext|> and [CLS]."},
};
/* clang-format on */

enum { SHOWN = 20 }; /* bytes of the input in messages */

typedef struct Ids {
    int32_t *data;
    size_t count, capacity;
} Ids;

static void ids_done(Ids *ids) {
    free(ids->data);
}

/* `text`, `length`: the number as it was given. */
static Status ids_add(Ids *ids, int64_t id, const char *text, size_t length, int64_t vocab,
                      const char *from) {
    if (id < 0 || id >= vocab)
        return FAILED("%s: token %zu is %.*s%s; expected an id from 0 to %lld", from, ids->count + 1,
                      length < SHOWN ? (int)length : SHOWN, text, length > SHOWN ? "..." : "",
                      (long long)vocab - 1);
    TRY(mem_grow(&ids->data, &ids->capacity, ids->count + 1, sizeof *ids->data));
    ids->data[ids->count++] = (int32_t)id;
    return OK;
}

static bool is_separator(char c) {
    return c == ',' || isspace((unsigned char)c);
}

/* Parses the id at *at. Parsing stops accumulating beyond INT32_MAX, since no vocabulary has such an id. */
static Status read_number(const TextInput *input, size_t *at, size_t index, int64_t *ret_id) {
    size_t start = *at, end = start;
    int64_t id = 0;
    bool negative = input->data[end] == '-';
    end += negative;
    size_t digits = end;
    for (; end < input->size && isdigit((unsigned char)input->data[end]); end++)
        id = id > INT32_MAX ? id : id * 10 + (input->data[end] - '0');
    if (end == digits || (end < input->size && !is_separator(input->data[end]))) {
        size_t shown = input->size - start < SHOWN ? input->size - start : SHOWN;
        return FAILED("%s: expected token ids separated by spaces or commas, found '%.*s' as token %zu",
                      input->name, (int)shown, input->data + start, index + 1);
    }
    *at = end;
    *ret_id = negative ? -id : id;
    return OK;
}

static Status read_numbers(const TextInput *input, int64_t vocab, Ids *ids) {
    for (size_t at = 0; at < input->size;) {
        if (is_separator(input->data[at])) {
            at++;
            continue;
        }
        int64_t id = 0;
        size_t start = at;
        TRY(read_number(input, &at, ids->count, &id));
        TRY(ids_add(ids, id, input->data + start, at - start, vocab, input->name));
    }
    return OK;
}

/* Reads {"ids": [...]}, as written by encode, or a bare list. */
static Status read_json(const TextInput *input, int64_t vocab, Ids *ids) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_parse(input->data, input->size, input->name, &json));
    const json_t *list = json_is_object(json) ? json_object_get(json, "ids") : json, *id;
    if (!json_is_array(list))
        return FAILED("%s: expected {\"ids\": [...]} or a list of token ids", input->name);
    size_t i;
    json_array_foreach(list, i, id) {
        if (!json_is_integer(id))
            return FAILED("%s: entry %zu of the list is not an integer", input->name, i + 1);
        char text[32];
        int length = snprintf(text, sizeof text, "%lld", (long long)json_integer_value(id));
        TRY(ids_add(ids, json_integer_value(id), text, (size_t)length, vocab, input->name));
    }
    return OK;
}

static Status read_ids(const TextInput *input, int64_t vocab, Ids *ids) {
    size_t at = 0;
    while (at < input->size && isspace((unsigned char)input->data[at])) at++;
    bool json = at < input->size && (input->data[at] == '{' || input->data[at] == '[');
    return json ? read_json(input, vocab, ids) : read_numbers(input, vocab, ids);
}

static Status pack_text(const char *bytes, size_t size, json_t **ret_result) {
    CLEANUP(mem_freep) char *text = NULL;
    TRY(text_to_utf8(bytes, size, &text, &size));
    *ret_result = json_pack("{so}", "text", json_stringn(text, size));
    return *ret_result ? OK : FAILED("out of memory while writing the result");
}

static Status run(Invocation *call, void *config, json_t **ret_result) {
    const DecodeArgs *args = config;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    TRY(open_tokenizer(&tokenizer, args->tokenizer));
    CLEANUP(text_input_done) TextInput input = {0};
    TRY(text_input_init(&input, "ids", args->ids, args->file));
    CLEANUP(ids_done) Ids ids = {0};
    TRY(read_ids(&input, tokenizer_vocab(tokenizer), &ids));
    CLEANUP(mem_freep) char *text = NULL;
    size_t size;
    TRY(tokenizer_decode(tokenizer, ids.data, ids.count, args->skip_special, &text, &size));
    if (call->json) return pack_text(text, size, ret_result);
    if (fwrite(text, 1, size, stdout) != size) return stdout_failed();
    /* Files get the exact bytes; a terminal gets a newline before the prompt. */
    if (isatty(STDOUT_FILENO)) putchar('\n');
    return OK;
}

const Command command_tokenizer_decode = {
    .name = "tokenizer decode",
    .summary = "convert token ids to text",
    .description = "Writes the exact bytes of the tokens, without a trailing newline. With --json: "
                   "{\"text\": ...}, where invalid UTF-8 becomes U+FFFD.",
    .positional = POSITIONAL("tokenizer", "ids"),
    .config_size = sizeof(DecodeArgs),
    .groups = GROUPS(OPTION_GROUP("Tokens", options, 0)),
    .examples = {{"Decode a few tokens", "weft tokenizer decode --tokenizer gpt2 --ids '15496 11 995'"},
                 {"Round trip", "weft tokenizer encode --tokenizer gpt2 --file a.txt | weft tokenizer decode "
                                "--tokenizer gpt2 >b.txt"}},
    .run = run,
};
