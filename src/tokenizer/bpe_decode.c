/* Decoders of tokenizers whose symbols are characters: Replace, Metaspace, WordPiece, Strip, ByteLevel,
 * ByteFallback and Fuse, alone or in a Sequence. A step before Fuse changes single tokens, so their text is
 * known in advance; only Strip may follow it, and only at the start of the text, so that text can be
 * streamed.
 *
 * ByteFallback turns a run of tokens such as <0xE2> into their bytes if the whole run is valid UTF-8, and
 * otherwise each of them into U+FFFD; so the text of a run is known when it ends. */
#include "tokenizer/bpe.h"
#include "tokenizer/wordpiece.h"

typedef enum { STEP_REPLACE, STEP_METASPACE, STEP_WORDPIECE, STEP_STRIP, STEP_BYTE_LEVEL } StepKind;

typedef struct Step {
    StepKind kind;
    char *from, *to; /* STEP_REPLACE; `from` is also the character or prefix of the others */
    size_t from_size, to_size;
    Regex *regex;        /* STEP_REPLACE: instead of `from` */
    bool drops;          /* STEP_METASPACE: the first token loses the character */
    bool clean_up;       /* STEP_WORDPIECE: spaces before punctuation are removed */
    int64_t start, stop; /* STEP_STRIP: how many characters at most */
} Step;

struct BpeDecoder {
    Step *steps;
    size_t count, capacity;
    bool bytes;  /* ByteFallback, after all steps */
    bool fused;  /* reading: Fuse was seen */
    bool spaces; /* no decoder: tokens are separated by spaces */
    Step *strip; /* at the start of the text, or NULL */
};

static void step_done(Step *step) {
    free(step->from);
    free(step->to);
    regex_free(step->regex);
}

void bpe_decoder_free(BpeDecoder *decoder) {
    if (!decoder) return;
    for (size_t i = 0; i < decoder->count; i++) step_done(&decoder->steps[i]);
    if (decoder->strip) step_done(decoder->strip);
    free(decoder->strip);
    free(decoder->steps);
    free(decoder);
}

/* ---- reading ---- */

static Status copy_text(const json_t *value, const char *what, bool empty, const char *from, char **ret_text,
                        size_t *ret_size) {
    *ret_size = json_string_length(value);
    if (!json_is_string(value) || (!empty && *ret_size == 0) || strlen(json_string_value(value)) != *ret_size)
        return FAILED("%s: %s of the decoder must be a string%s", from, what,
                      empty ? "" : " that is not empty");
    return str_dup(json_string_value(value), ret_text);
}

static Status read_replace(Step *step, const json_t *json, const char *from) {
    const json_t *pattern = json_object_get(json, "pattern"), *regex = json_object_get(pattern, "Regex");
    TRY(copy_text(json_object_get(json, "content"), "'content'", true, from, &step->to, &step->to_size));
    if (json_is_string(regex))
        return regex_new_replacing(&step->regex, json_string_value(regex), json_string_length(regex), from);
    return copy_text(json_object_get(pattern, "String"), "'pattern.String'", false, from, &step->from,
                     &step->from_size);
}

static Status read_step(Step *step, const json_t *json, const char *type, const char *from) {
    if (!strcmp(type, "Replace")) return read_replace(step, json, from);
    if (!strcmp(type, "ByteLevel")) {
        step->kind = STEP_BYTE_LEVEL;
        return OK;
    }
    if (!strcmp(type, "WordPiece")) {
        step->kind = STEP_WORDPIECE;
        step->clean_up = true;
        TRY(json_get_bool(json, from, "cleanup", &step->clean_up));
        return copy_text(json_object_get(json, "prefix"), "'prefix'", true, from, &step->from,
                         &step->from_size);
    }
    if (!strcmp(type, "Metaspace")) {
        const char *scheme = "always";
        bool prefix = true;
        step->kind = STEP_METASPACE;
        TRY(json_get_string(json, from, "prepend_scheme", &scheme));
        TRY(json_get_bool(json, from, "add_prefix_space", &prefix));
        step->drops = prefix && strcmp(scheme, "never") != 0;
        return copy_text(json_object_get(json, "replacement"), "'replacement'", false, from, &step->from,
                         &step->from_size);
    }
    if (!strcmp(type, "Strip")) {
        step->kind = STEP_STRIP;
        TRY(json_get_int(json, from, "start", 0, 1000, &step->start));
        TRY(json_get_int(json, from, "stop", 0, 1000, &step->stop));
        return copy_text(json_object_get(json, "content"), "'content'", false, from, &step->from,
                         &step->from_size);
    }
    return FAILED(
        "%s: 'decoder' of type %.60s is not supported; expected ByteLevel, Replace, Metaspace, WordPiece, "
        "Strip, ByteFallback, Fuse or a Sequence of these",
        from, type);
}

static Status add_step(BpeDecoder *decoder, const json_t *json, const char *type, const char *from) {
    if (!strcmp(type, "Fuse")) {
        decoder->fused = true;
        return OK;
    }
    bool final = decoder->fused && !strcmp(type, "Strip") && !decoder->strip;
    if ((decoder->fused || decoder->bytes) && !final)
        return FAILED("%s: 'decoder' has a %.60s after %s, which is not supported", from, type,
                      decoder->fused ? "Fuse or ByteLevel" : "ByteFallback");
    if (!strcmp(type, "ByteFallback")) {
        decoder->bytes = true;
        return OK;
    }
    decoder->fused = !strcmp(type, "ByteLevel") || decoder->fused;
    if (final) {
        TRY(mem_new(1, sizeof *decoder->strip, &decoder->strip));
        TRY(read_step(decoder->strip, json, type, from));
        if (decoder->strip->stop > 0)
            return FAILED("%s: 'decoder' has a Strip that removes text at the end, which is not supported",
                          from);
        return OK;
    }
    TRY(mem_grow(&decoder->steps, &decoder->capacity, decoder->count + 1, sizeof *decoder->steps));
    Step *step = &decoder->steps[decoder->count++];
    *step = (Step){0};
    return read_step(step, json, type, from);
}

static Status read_any(BpeDecoder *decoder, const json_t *json, int depth, const char *from) {
    enum { DEPTH_LIMIT = 20 };
    const char *type = json_string_value(json_object_get(json, "type"));
    if (!type) type = "(none)";
    if (strcmp(type, "Sequence") != 0) return add_step(decoder, json, type, from);
    const json_t *list = json_object_get(json, "decoders");
    if (!json_is_array(list)) return FAILED("%s: 'decoder.decoders' must be a list", from);
    if (depth == DEPTH_LIMIT) return FAILED("%s: 'decoder' is nested too deeply", from);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(read_any(decoder, json_array_get(list, i), depth + 1, from));
    return OK;
}

Status bpe_decoder_new(BpeDecoder **ret_decoder, const json_t *json, const char *from) {
    CLEANUP(bpe_decoder_freep) BpeDecoder *decoder = NULL;
    TRY(mem_new(1, sizeof *decoder, &decoder));
    decoder->spaces = !json || json_is_null(json);
    if (!decoder->spaces) TRY(read_any(decoder, json, 0, from));
    return MOVE(ret_decoder, decoder);
}

/* ---- single tokens ---- */

static Status replace(const char *text, size_t size, const Step *step, const char *to, size_t to_size,
                      Bytes *out) {
    for (size_t at = 0; at < size;) {
        const char *found = memmem(text + at, size - at, step->from, step->from_size);
        size_t end = found ? (size_t)(found - text) : size;
        TRY(bytes_add(out, text + at, end - at));
        if (found) TRY(bytes_add(out, to, to_size));
        at = end + (found ? step->from_size : 0);
    }
    return OK;
}

static Status replace_matches(const char *text, size_t size, const Step *step, Bytes *out) {
    CLEANUP(regex_scratch_done) RegexScratch scratch = {0};
    for (size_t at = 0, start, end; at < size; at = end) {
        TRY(regex_find(step->regex, &scratch, text, size, at, &start, &end));
        TRY(bytes_add(out, text + at, start - at));
        if (start < end) TRY(bytes_add(out, step->to, step->to_size));
    }
    return OK;
}

/* As decode_wordpiece. */
static Status join_piece(const char *text, size_t size, const Step *step, bool first, Bytes *out) {
    bool continues = size >= step->from_size && !memcmp(text, step->from, step->from_size);
    size_t prefix = !first && continues ? step->from_size : 0, start = out->size;
    if (!first && !continues) TRY(bytes_add(out, " ", 1));
    TRY(bytes_add(out, text + prefix, size - prefix));
    if (step->clean_up) wordpiece_clean_up(out, start);
    return OK;
}

static Status strip(const char *text, size_t size, const Step *step, Bytes *out) {
    for (int64_t i = 0; i < step->start && size >= step->from_size; i++) {
        if (memcmp(text, step->from, step->from_size) != 0) break;
        text += step->from_size;
        size -= step->from_size;
    }
    for (int64_t i = 0; i < step->stop && size >= step->from_size; i++) {
        if (memcmp(text + size - step->from_size, step->from, step->from_size) != 0) break;
        size -= step->from_size;
    }
    return bytes_add(out, text, size);
}

int bpe_fallback_byte(const char *token) {
    int value = 0;
    if (memcmp(token, "<0x", 3) != 0 || token[5] != '>') return -1;
    for (int i = 3; i < 5; i++) {
        const char *digits = "0123456789abcdef",
                   *found = memchr(digits, token[i] >= 'A' ? token[i] | 0x20 : token[i], 16);
        if (!found) return -1;
        value = value << 4 | (int)(found - digits);
    }
    return value;
}

Status bpe_decoder_token(const BpeDecoder *decoder, const char *token, size_t size, bool first, Bytes *out) {
    CLEANUP(bytes_done) Bytes before = {0};
    CLEANUP(bytes_done) Bytes after = {0};
    TRY(bytes_add(&before, token, size));
    for (size_t i = 0; i < decoder->count; i++) {
        const Step *step = &decoder->steps[i];
        after.size = 0;
        switch (step->kind) {
        case STEP_REPLACE:
            if (step->regex)
                TRY(replace_matches(before.data, before.size, step, &after));
            else
                TRY(replace(before.data, before.size, step, step->to, step->to_size, &after));
            break;
        case STEP_METASPACE:
            TRY(replace(before.data, before.size, step, " ", first && step->drops ? 0 : 1, &after));
            break;
        case STEP_STRIP: TRY(strip(before.data, before.size, step, &after)); break;
        case STEP_WORDPIECE: TRY(join_piece(before.data, before.size, step, first, &after)); break;
        case STEP_BYTE_LEVEL:
            TRY(mem_grow(&after.data, &after.capacity, before.size + 1, 1));
            after.size = bpe_unspell_text(before.data, before.size, after.data);
            break;
        }
        Bytes swap = before;
        before = after;
        after = swap;
    }
    return bytes_add(out, before.data, before.size);
}

/* Appends text without what is stripped at the start. */
static Status put_text(const BpeDecoder *decoder, DecodeState *state, const char *text, size_t size,
                       Bytes *out) {
    const Step *strip = decoder->strip;
    while (strip && !state->started && size > 0) {
        state->started = (int64_t)state->stripped == strip->start || size < strip->from_size ||
                         memcmp(text, strip->from, strip->from_size) != 0;
        if (state->started) break;
        state->stripped++;
        text += strip->from_size;
        size -= strip->from_size;
    }
    return bytes_add(out, text, size);
}

Status bpe_decoder_end(const BpeDecoder *decoder, DecodeState *state, Bytes *out) {
    Bytes *run = &state->run;
    size_t count = run->size, invalid;
    if (count == 0) return OK;
    run->size = 0;
    if (text_invalid_utf8(run->data, count, &invalid) == 0)
        return put_text(decoder, state, run->data, count, out);
    for (size_t i = 0; i < count; i++) TRY(put_text(decoder, state, "\xEF\xBF\xBD", 3, out));
    return OK;
}

Status bpe_decoder_add(const BpeDecoder *decoder, DecodeState *state, const char *token, size_t token_size,
                       const char *text, size_t size, Bytes *out) {
    CLEANUP(bytes_done) Bytes first = {0};
    if (state->count == 0) {
        TRY(bpe_decoder_token(decoder, token, token_size, true, &first));
        text = first.data;
        size = first.size;
    } else if (decoder->spaces) {
        TRY(bytes_add(out, " ", 1));
    }
    int byte = decoder->bytes && size == 6 ? bpe_fallback_byte(text) : -1;
    if (byte >= 0) {
        char one = (char)byte;
        return bytes_add(&state->run, &one, 1);
    }
    TRY(bpe_decoder_end(decoder, state, out));
    return put_text(decoder, state, text, size, out);
}
