/* The JSON of generated samples. */
#include "cli/generate.h"

#include <string.h>

#include "base/format.h"
#include "base/memory.h"

static Status pack_ids(const int32_t *ids, int64_t count, json_t **ret_array) {
    json_t *array = json_array();
    for (int64_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, json_integer(ids[i])) != 0) json_decref(array), array = NULL;
    if (!array) return FAILED("out of memory while writing the result");
    *ret_array = array;
    return OK;
}

static Status pack_text(const TextStream *text, json_t *object) {
    const char *all = text->text ? text->text : "";
    size_t prompt = text->prompt_size;
    TRY(json_put(object, "text", json_stringn(all, text->size)));
    TRY(json_put(object, "new_text", json_stringn(all + prompt, text->size - prompt)));
    return text->stop < 0 ? OK : json_put(object, "stop", json_string(text->stops.texts[text->stop]));
}

static const char *reason_of(const Sample *sample, const TextStream *text) {
    if (text && text->stop >= 0) return "stop";
    return sample->ended == ENDED_END ? "end" : "length";
}

/* The text of a single token; an incomplete character becomes U+FFFD. */
static Status token_text(Decoder *decoder, int64_t vocab, int32_t id, json_t **ret_text) {
    CLEANUP(mem_freep) char *text = NULL;
    const char *piece = NULL;
    size_t size = 0, capacity = 0, more = 0;
    if (id < vocab) TRY(decoder_push(decoder, id, &piece, &size));
    TRY(mem_grow(&text, &capacity, size + 1, 1));
    if (size) memcpy(text, piece, size);
    TRY(decoder_end(decoder, &piece, &more));
    TRY(mem_grow(&text, &capacity, size + more + 1, 1));
    if (more) memcpy(text + size, piece, more);
    *ret_text = json_stringn(text, size + more);
    return *ret_text ? OK : FAILED("out of memory while writing the result");
}

static Status pack_score(const TokenScore *score, Decoder *decoder, int64_t vocab, json_t **ret_score) {
    CLEANUP(json_decrefp)
    json_t *object = json_pack("{sI sf}", "id", (json_int_t)score->id, "logprob", (double)score->logprob);
    json_t *text = NULL;
    if (!object) return FAILED("out of memory while writing the result");
    if (decoder) {
        TRY(token_text(decoder, vocab, score->id, &text));
        TRY(json_put(object, "text", text));
    }
    *ret_score = json_incref(object);
    return OK;
}

/* One object per new token; with alternatives, these as 'top'. */
static Status pack_scores(const Sample *sample, int64_t top, const Tokenizer *tokenizer, json_t *object) {
    CLEANUP(decoder_freep) Decoder *decoder = NULL;
    int64_t vocab = tokenizer ? tokenizer_vocab(tokenizer) : 0;
    if (tokenizer) TRY(decoder_new(&decoder, tokenizer, false));
    json_t *list = json_array();
    TRY(json_put(object, "logprobs", list));
    for (int64_t t = 0; t < sample->count - sample->prompt_count; t++) {
        const TokenScore *scores = sample->scores + t * (1 + top);
        json_t *token = NULL;
        TRY(pack_score(scores, decoder, vocab, &token));
        json_array_append_new(list, token);
        json_t *others = json_array();
        if (top) TRY(json_put(token, "top", json_incref(others)));
        for (int64_t i = 1; i <= top; i++) {
            json_t *other = NULL;
            TRY(pack_score(scores + i, decoder, vocab, &other));
            json_array_append_new(others, other);
        }
        json_decref(others);
    }
    return OK;
}

static Status pack_sample(const ResultSpec *spec, int64_t at, json_t *samples) {
    const Sample *sample = &spec->generated->samples[at];
    const TextStream *text = spec->texts ? &spec->texts[at] : NULL;
    const int32_t *new_ids = sample->ids + sample->prompt_count;
    int64_t new_count = sample->count - sample->prompt_count;
    json_t *object = json_object(), *ids = NULL;
    if (json_array_append_new(samples, object) != 0) return FAILED("out of memory while writing the result");
    TRY(json_put(object, "index", json_integer(at / spec->samples)));
    TRY(json_put(object, "sample", json_integer(at % spec->samples)));
    TRY(pack_ids(sample->ids, sample->count, &ids));
    TRY(json_put(object, "ids", ids));
    TRY(pack_ids(new_ids, new_count, &ids));
    TRY(json_put(object, "new_ids", ids));
    TRY(json_put(object, "reason", json_string(reason_of(sample, text))));
    if (spec->scored) TRY(json_put(object, "score", json_real((double)sample->score)));
    if (sample->scores) TRY(pack_scores(sample, spec->top_logprobs, spec->tokenizer, object));
    return text ? pack_text(text, object) : OK;
}

static Status pack_times(const Generated *generated, json_t *result) {
    json_t *list = json_array();
    TRY(json_put(result, "batches", list));
    for (int64_t i = 0; i < generated->batch_count; i++) {
        const GenerateTimes *times = &generated->batches[i];
        json_t *object = json_pack("{sf sf}", "prefill_s", times->prefill_s, "decode_s", times->decode_s);
        if (json_array_append_new(list, object) != 0) return FAILED("out of memory while writing the result");
    }
    return OK;
}

Status result_pack(const ResultSpec *spec, json_t **ret_result) {
    const Generated *generated = spec->generated;
    double seconds = generated->prefill_s + generated->decode_s;
    int64_t decoded = generated->new_tokens - generated->count;
    CLEANUP(json_decrefp)
    json_t *result = json_pack(
        "{s[] sI sI sf sf sf sf sI}", "samples", "prompt_tokens", (json_int_t)generated->prompt_tokens,
        "new_tokens", (json_int_t)generated->new_tokens, "prefill_s", generated->prefill_s, "decode_s",
        generated->decode_s, "tokens_per_s", seconds > 0 ? (double)generated->new_tokens / seconds : 0.0,
        "decode_tokens_per_s", decoded > 0 ? (double)decoded / generated->decode_s : 0.0, "peak_bytes",
        (json_int_t)spec->engine->device->total.peak);
    if (!result) return FAILED("out of memory while writing the result");
    if (generated->batches) TRY(pack_times(generated, result));
    for (int64_t i = 0; i < generated->count; i++)
        TRY(pack_sample(spec, i, json_object_get(result, "samples")));
    *ret_result = json_incref(result);
    return OK;
}

Status result_print_lines(const json_t *result, FILE *out) {
    size_t at;
    const json_t *sample;
    json_array_foreach(json_object_get(result, "samples"), at, sample) {
        CLEANUP(mem_freep) char *text = NULL;
        TRY(json_text(sample, JSON_COMPACT, &text));
        fprintf(out, "%s\n", text);
    }
    return OK;
}

static void show_sample(const json_t *sample, bool fresh, FILE *out) {
    const json_t *text = json_object_get(sample, fresh ? "new_text" : "text"), *id;
    Printer printer = printer_of(out);
    size_t index;
    if (text)
        print_text(&printer, json_string_value(text), json_string_length(text));
    else
        json_array_foreach(json_object_get(sample, "ids"), index, id)
            print_number(&printer, (int32_t)json_integer_value(id));
    print_end(&printer);
}

static void show_heading(const json_t *sample, int64_t prompts, int64_t samples, FILE *out) {
    int64_t prompt = json_int_at(sample, "index") + 1;
    int64_t index = json_int_at(sample, "sample") + 1;
    fputs(prompt + index > 2 ? "\n=== " : "=== ", out);
    if (prompts > 1) fprintf(out, "prompt %lld of %lld", (long long)prompt, (long long)prompts);
    if (samples > 1)
        fprintf(out, "%ssample %lld of %lld", prompts > 1 ? ", " : "", (long long)index, (long long)samples);
    fputs(" ===\n", out);
}

void result_show(const json_t *result, int64_t samples, bool fresh, FILE *out) {
    const json_t *list = json_object_get(result, "samples"), *sample;
    int64_t prompts = (int64_t)json_array_size(list) / samples;
    size_t at;
    json_array_foreach(list, at, sample) {
        if (prompts * samples > 1) show_heading(sample, prompts, samples, out);
        show_sample(sample, fresh, out);
    }
}

void result_show_speed(const json_t *result, FILE *out) {
    json_int_t tokens = json_int_at(result, "new_tokens");
    fprintf(out, "weft: %lld token%s in %.2f s (%.1f tokens/s)\n", (long long)tokens, PLURAL(tokens),
            json_number_at(result, "prefill_s") + json_number_at(result, "decode_s"),
            json_number_at(result, "tokens_per_s"));
}
