#include "data/chats.h"

#include <string.h>

#include "base/format.h"
#include "base/memory.h"
#include "data/dataset_internal.h"
#include "data/mask.h"

/* ---- one conversation ---- */

void chat_tokens_done(ChatTokens *tokens) {
    free(tokens->text);
    token_list_done(&tokens->tokens);
    free(tokens->trained);
    *tokens = (ChatTokens){0};
}

/* The content of a message that is a text; NULL: it is none. */
static const char *content_at(const json_t *messages, size_t index) {
    return json_string_at(json_array_get(messages, index), "content");
}

/* Without a template: the prompt, the completion and the end token. */
static Status make_plain(ChatTokens *tokens, Encoder *encoder, const json_t *conversation, int32_t end,
                         JinjaOutput *output) {
    const json_t *messages = json_object_get(conversation, "messages");
    const char *prompt = content_at(messages, 0), *completion = content_at(messages, 1);
    bool plain = json_integer_value(json_object_get(conversation, "completion")) == 1 && prompt && completion;
    if (!plain || json_array_size(messages) != 2)
        return FAILED("messages need a chat template, but the model has none; pass {chat-template} FILE");
    TRY(str_format(&output->text, "%s%s", prompt, completion));
    output->size = strlen(output->text);
    TRY(mem_new(1, sizeof *output->marks, &output->marks));
    output->marks[output->mark_count++] = (JinjaSpan){strlen(prompt), output->size};
    TRY(encoder_add_sequence(encoder, (TextView){output->text, output->size}, NULL, true, &tokens->tokens));
    TokenList *list = &tokens->tokens;
    if (end < 0 || (list->count && list->ids[list->count - 1] == end)) return OK;
    TRY(mem_grow(&list->ids, &list->capacity, list->count + 1, sizeof *list->ids));
    TRY(mem_grow(&list->offsets, &list->offset_capacity, list->count + 1, sizeof *list->offsets));
    list->ids[list->count] = end;
    list->offsets[list->count++] = (TokenOffset){output->size, output->size};
    output->marks[0].end = output->size + 1;
    return OK;
}

static bool is_blank(const char *text, TokenOffset offset) {
    for (size_t at = offset.start; at < offset.end; at++)
        if (!strchr(" \t\r\n", text[at])) return false;
    return true;
}

/* A turn ends with the token that marks its end: the blanks after it are the template's. */
static void drop_blanks(ChatTokens *tokens, const Tokenizer *tokenizer, size_t first, size_t last) {
    size_t end = last;
    while (end > first && is_blank(tokens->text, tokens->tokens.offsets[end]) &&
           tokenizer_class(tokenizer, tokens->tokens.ids[end]) == TOKEN_NORMAL)
        end--;
    if (tokenizer_class(tokenizer, tokens->tokens.ids[end]) == TOKEN_NORMAL) return;
    while (last > end) tokens->trained[last--] = false;
}

/* A token that is partly in a mark is trained on, as in transformers. */
static void mark_tokens(ChatTokens *tokens, const Tokenizer *tokenizer, JinjaSpan mark, bool turn) {
    const TokenList *list = &tokens->tokens;
    size_t first = list->count, last = 0;
    for (size_t i = 0; i < list->count; i++) {
        TokenOffset offset = list->offsets[i];
        bool inside = offset.start < mark.end && offset.end > mark.start;
        bool at_end = offset.start == offset.end && offset.start > mark.start && offset.end < mark.end;
        if (!inside && !at_end) continue;
        tokens->trained[i] = true;
        if (first == list->count) first = i;
        last = i;
    }
    if (turn && first < list->count) drop_blanks(tokens, tokenizer, first, last);
}

Status chat_tokens_make(ChatTokens *tokens, const ChatTemplate *template, const Tokenizer *tokenizer,
                        Encoder *encoder, const json_t *conversation, LossOn loss_on, int32_t end) {
    CLEANUP(jinja_output_done) JinjaOutput output = {0};
    free(tokens->text);
    tokens->text = NULL;
    tokens->tokens.count = 0;
    if (template) {
        TRY(chat_render_marked(template, conversation, loss_on, &output));
        TRY(encoder_add(encoder, output.text, output.size, &tokens->tokens));
    } else {
        TRY(make_plain(tokens, encoder, conversation, end, &output));
        if (loss_on == LOSS_ON_ALL) output.marks[0].start = 0;
    }
    tokens->text = output.text;
    output.text = NULL;
    TRY(mem_grow(&tokens->trained, &tokens->capacity, tokens->tokens.count + 1, sizeof *tokens->trained));
    memset(tokens->trained, 0, tokens->tokens.count);
    for (size_t i = 0; i < output.mark_count; i++)
        mark_tokens(tokens, tokenizer, output.marks[i], loss_on != LOSS_ON_ALL);
    return OK;
}

/* ---- a set ---- */

typedef struct Reading {
    ChatSet *set;
    const DataSpec *spec;
    Encoder *encoder;
    ChatTokens tokens;
} Reading;

static void reading_done(Reading *reading) {
    encoder_free(reading->encoder);
    chat_tokens_done(&reading->tokens);
}

void chat_set_done(ChatSet *set) {
    free(set->example);
    free(set->pool);
    free(set->order);
    free(set->row);
    *set = (ChatSet){0};
}

/* The first token is never predicted. */
static Status take_conversation(void *context, int64_t number, const json_t *conversation) {
    Reading *reading = context;
    ChatSet *set = reading->set;
    const DataSpec *spec = reading->spec;
    (void)number;
    TRY(chat_tokens_make(&reading->tokens, spec->chat, spec->encoder, reading->encoder, conversation,
                         spec->loss_on, spec->end));
    const TokenList *list = &reading->tokens.tokens;
    size_t length = list->count, most = (size_t)spec->seq + 1;
    int64_t trained = 0;
    if (length > most) {
        set->truncated++;
        set->dropped += (int64_t)(length - most);
        length = most;
    }
    TRY(mem_grow(&set->pool, &set->pool_capacity, set->used + length, sizeof *set->pool));
    for (size_t i = 0; i < length; i++) {
        bool counts = i > 0 && reading->tokens.trained[i];
        if (list->ids[i] >= spec->vocab)
            return FAILED("the token %d is outside the model's vocabulary of %lld tokens", list->ids[i],
                          (long long)spec->vocab);
        set->pool[set->used + i] = counts ? -1 - list->ids[i] : list->ids[i];
        trained += counts;
    }
    if (!trained) {
        set->untrained++;
        return OK;
    }
    TRY(mem_grow(&set->example, &set->capacity, set->count + 1, sizeof *set->example));
    set->example[set->count++] = (ChatExample){set->used, (int32_t)length};
    set->used += length;
    return OK;
}

Status chat_set_read(ChatSet *set, const DataSpec *spec) {
    CLEANUP(reading_done) Reading reading = {.set = set, .spec = spec};
    EncodeOptions options = {.offsets = true};
    TRY(encoder_new(&reading.encoder, spec->encoder, &options));
    for (int i = 0; i < spec->path_count; i++) {
        CLEANUP(source_done) Source source = {0};
        TRY(source_init_objects(&source, spec->paths[i], SOURCE_GZ_LIMIT));
        TRY(chat_read(spec->paths[i], (const char *)source.data, source.size, &set->format, take_conversation,
                      &reading));
    }
    if (set->count == 0)
        return FAILED(
            "%s: nothing to train on: %lld conversation%s without a word of the assistant within %lld tokens",
            spec->paths[0], (long long)set->untrained, PLURAL(set->untrained), (long long)spec->seq);
    return OK;
}

/* ---- packing ---- */

/* Examples sorted by length, the longest first; equal ones stay in order. */
static Status sort_by_length(const ChatSet *set, size_t begin, size_t size, size_t seq, size_t **ret_sorted) {
    CLEANUP(mem_freep) size_t *start = NULL, *sorted = NULL;
    TRY(mem_new(seq + 2, sizeof *start, &start));
    TRY(mem_new(size + 1, sizeof *sorted, &sorted));
    for (size_t i = begin; i < begin + size; i++) start[seq - (size_t)set->example[i].length + 2]++;
    for (size_t k = 1; k < seq + 2; k++) start[k] += start[k - 1];
    for (size_t i = begin; i < begin + size; i++)
        sorted[start[seq - (size_t)set->example[i].length + 1]++] = i;
    return MOVE(ret_sorted, sorted);
}

/* Rows with room, as a stack for each number of free positions, and a bit for each stack that is not empty.
 */
typedef struct Bins {
    size_t *first, *next; /* row + 1; 0: none */
    uint64_t *some;
} Bins;

static void bins_done(Bins *bins) {
    free(bins->first);
    free(bins->next);
    free(bins->some);
}

static void bins_put(Bins *bins, size_t room, size_t row) {
    bins->next[row] = bins->first[room];
    bins->first[room] = row + 1;
    bins->some[room / 64] |= UINT64_C(1) << room % 64;
}

/* Removes the row whose room fits best; false if none has enough. */
static bool bins_take(Bins *bins, size_t need, size_t seq, size_t *ret_room, size_t *ret_row) {
    for (size_t word = need / 64; word <= seq / 64; word++) {
        uint64_t some = bins->some[word];
        if (word == need / 64) some &= ~UINT64_C(0) << need % 64;
        if (!some) continue;
        size_t room = word * 64 + (size_t)__builtin_ctzll(some);
        *ret_room = room;
        *ret_row = bins->first[room] - 1;
        bins->first[room] = bins->next[*ret_row];
        if (!bins->first[room]) bins->some[word] &= ~(UINT64_C(1) << room % 64);
        return true;
    }
    return false;
}

/* Assigns a row to each example; rows are numbered as they are opened. */
static Status assign_rows(const ChatSet *set, size_t begin, size_t size, size_t seq, size_t *row_of,
                          size_t *ret_rows) {
    CLEANUP(mem_freep) size_t *sorted = NULL;
    CLEANUP(bins_done) Bins bins = {0};
    size_t rows = 0;
    TRY(sort_by_length(set, begin, size, seq, &sorted));
    TRY(mem_new(seq + 1, sizeof *bins.first, &bins.first));
    TRY(mem_new(size + 1, sizeof *bins.next, &bins.next));
    TRY(mem_new(seq / 64 + 1, sizeof *bins.some, &bins.some));
    for (size_t k = 0; k < size; k++) {
        size_t need = (size_t)set->example[sorted[k]].length - 1, room = seq, row = rows;
        if (!bins_take(&bins, need, seq, &room, &row)) rows++;
        row_of[sorted[k] - begin] = row;
        bins_put(&bins, room - need, row);
    }
    *ret_rows = rows;
    return OK;
}

/* Rows are in the order of their first example, so that unshuffled data stays in the order of the file. */
static Status order_rows(ChatSet *set, size_t begin, size_t size, size_t rows, const size_t *row_of) {
    CLEANUP(mem_freep) size_t *number = NULL;
    size_t seen = 0;
    TRY(mem_new(rows + 1, sizeof *number, &number));
    TRY(mem_new(rows + 2, sizeof *set->row, &set->row));
    TRY(mem_new(size + 1, sizeof *set->order, &set->order));
    for (size_t i = 0; i < size; i++) {
        if (!number[row_of[i]]) number[row_of[i]] = ++seen;
        set->row[number[row_of[i]] + 1]++;
    }
    for (size_t k = 1; k < rows + 2; k++) set->row[k] += set->row[k - 1];
    for (size_t i = 0; i < size; i++) set->order[set->row[number[row_of[i]]]++] = begin + i;
    set->rows = rows;
    return OK;
}

Status chat_set_pack(ChatSet *set, int64_t begin, int64_t size, int64_t seq, bool packed) {
    CLEANUP(mem_freep) size_t *row_of = NULL;
    size_t count = (size_t)size, rows = count;
    TRY(mem_new(count + 1, sizeof *row_of, &row_of));
    for (size_t i = 0; i < count; i++) row_of[i] = i;
    if (packed) TRY(assign_rows(set, (size_t)begin, count, (size_t)seq, row_of, &rows));
    return order_rows(set, (size_t)begin, count, rows, row_of);
}

static int32_t token_of(int32_t entry) {
    return entry < 0 ? -1 - entry : entry;
}

void chat_set_fill(const ChatSet *set, size_t row, int32_t pad, int64_t b, HostBatch *batch) {
    int64_t T = batch->T, t = 0, start = 0;
    int32_t *tokens = batch->tokens + b * T, *labels = batch->labels + b * T;
    int32_t *starts = batch->starts + b * T, *positions = batch->positions + b * T;
    for (size_t k = set->row[row]; k < set->row[row + 1]; k++) {
        const ChatExample *example = &set->example[set->order[k]];
        const int32_t *entry = set->pool + example->at;
        start = t;
        for (int32_t i = 0; i + 1 < example->length; i++, t++) {
            tokens[t] = token_of(entry[i]);
            labels[t] = entry[i + 1] < 0 ? token_of(entry[i + 1]) : LABEL_IGNORED;
            starts[t] = (int32_t)start;
            positions[t] = (int32_t)(t - start);
        }
    }
    batch->lens[b] = (int32_t)t;
    for (; t < T; t++) {
        tokens[t] = pad;
        labels[t] = LABEL_IGNORED;
        starts[t] = (int32_t)start;
        positions[t] = (int32_t)(t - start);
    }
}

/* ---- what users should know ---- */

Status chat_set_warning(const ChatSet *set, int64_t seq, char **ret_text) {
    CLEANUP(mem_freep) char *cut = NULL, *left = NULL;
    *ret_text = NULL;
    if (set->truncated)
        TRY(str_format(
            &cut,
            "%lld of %lld conversations %s longer than %lld tokens and truncated, which drops %lld tokens",
            (long long)set->truncated, (long long)set->count + set->untrained,
            set->truncated == 1 ? "is" : "are", (long long)seq + 1, (long long)set->dropped));
    if (set->untrained)
        TRY(str_format(&left, "%s%lld conversation%s without words to train on %s skipped", cut ? "; " : "",
                       (long long)set->untrained, PLURAL(set->untrained),
                       set->untrained == 1 ? "is" : "are"));
    if (!cut && !left) return OK;
    return str_format(ret_text, "%s%s", cut ? cut : "", left ? left : "");
}

Status chat_set_text(const ChatSet *set, char **ret_text) {
    int64_t tokens = 0, trained = 0;
    size_t count = set->row[set->rows];
    for (size_t k = 0; k < count; k++) {
        const ChatExample *example = &set->example[set->order[k]];
        for (int32_t i = 0; i < example->length; i++) trained += set->pool[example->at + (size_t)i] < 0;
        tokens += example->length;
    }
    return str_format(ret_text,
                      "%zu conversation%s (%s) in %zu sequence%s, with a loss on %.0f%% of the tokens", count,
                      PLURAL(count), chat_format_name(set->format), set->rows, PLURAL(set->rows),
                      100 * (double)trained / (double)tokens);
}
