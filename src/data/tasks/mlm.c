/* Masked tokens and next sentence. The examples of a stream are windows of as many tokens as fit between the
 * special tokens, split at random into two parts or, if sentences are marked, the pairs of data/pairs.h. P of
 * the T positions are filled from the stream. */
#include <string.h>

#include "data/task.h"

/* ---- checks ---- */

static Status require(const char *name, int32_t token) {
    if (token >= 0) return OK;
    return USAGE("masked-token training needs a %s token, but the vocabulary has none", name);
}

static Status check(const DataSpec *spec, DataFormat format) {
    bool from_ids = format == FORMAT_IDS;
    if (!from_ids) {
        TRY(require("start ([CLS])", spec->special.cls));
        TRY(require("separator ([SEP])", spec->special.sep));
        TRY(require("mask ([MASK])", spec->special.mask));
    }
    if (!(spec->mask_rate > 0 && spec->mask_rate <= 1))
        return USAGE("the fraction of masked tokens is %g; expected more than 0 and at most 1",
                     spec->mask_rate);
    int64_t minimum = from_ids ? 1 : spec->next_sentence ? 5 : 3;
    if (spec->seq < minimum)
        return USAGE("the sequence length is %lld; expected at least %lld to fit the special tokens",
                     (long long)spec->seq, (long long)minimum);
    if (!from_ids && spec->next_sentence && spec->types == 1)
        return USAGE("sentence pairs need 2 token types, but the model has 1");
    if (masking_from(spec).special_count >= spec->vocab)
        return USAGE("the vocabulary of %lld tokens contains only special tokens", (long long)spec->vocab);
    return OK;
}

/* Drawing masks needs the mask token, and the two tokens that must never be masked. */
static Status check_can_mask(const IdsLine *line) {
    const SpecialTokens *special = &line->spec->special;
    const char *lacking = special->mask < 0  ? "mask ([MASK])"
                          : special->cls < 0 ? "start ([CLS])"
                          : special->sep < 0 ? "separator ([SEP])"
                                             : NULL;
    if (!lacking) return OK;
    return FAILED("%s: line %lld: 'labels' is missing, and masks cannot be drawn because the vocabulary "
                  "lacks a %s token",
                  line->file, (long long)line->number, lacking);
}

static Status read_labels(IdsSet *set, const IdsLine *line, IdsExample *example) {
    const DataSpec *spec = line->spec;
    TRY(ids_read_labels(set, line, spec->vocab, example));
    if (!example->has_labels && !spec->no_masks) TRY(check_can_mask(line));
    return spec->next_sentence ? ids_read_number(line, "next", 1, &example->next) : OK;
}

static bool counted(const Dataset *data, int64_t index) {
    const IdsExample *example = &data->ids.example[index];
    const int32_t *given = labels_of(&data->ids, example), *labels = given;
    const Masking *masking = &data->masking;
    if (data->spec.next_sentence) return true;
    if (!labels) labels = ids_of(&data->ids, example);
    for (int32_t t = 0; t < example->length; t++) {
        bool special = false;
        for (int i = 0; !given && i < masking->special_count; i++)
            special |= labels[t] == masking->special[i];
        if (labels[t] != LABEL_IGNORED && !special) return true;
    }
    return false;
}

/* ---- labels ---- */

static void mask_row(const Dataset *data, Slot slot, int64_t length, HostBatch *batch) {
    int32_t *labels = batch->labels + slot.b * batch->T;
    if (data->spec.no_masks) {
        for (int64_t t = 0; t < length; t++) labels[t] = LABEL_IGNORED;
        return;
    }
    RngKey key = rng_key(data->spec.seed, "data.mask", slot.epoch);
    key.key = rng_mix(key.key, slot.position);
    int64_t row = slot.b * batch->T;
    masking_apply(&data->masking, key, batch->tokens + row, labels, length);
}

static void label(const Dataset *data, Slot slot, const IdsExample *example, HostBatch *batch) {
    const int32_t *given = example ? labels_of(&data->ids, example) : NULL;
    int64_t length = batch->lens[slot.b];
    if (given)
        memcpy(batch->labels + slot.b * batch->T, given, (size_t)length * sizeof *given);
    else
        mask_row(data, slot, length, batch);
}

static void count(HostBatch *batch) {
    batch->pick_count = 0;
    for (int64_t i = 0; i < batch->B * batch->T; i++) {
        if (batch->labels[i] == LABEL_IGNORED) continue;
        batch->picks[batch->pick_count] = (int32_t)i;
        batch->pick_labels[batch->pick_count++] = batch->labels[i];
    }
    batch->loss_count[LOSS_TOKEN] = batch->pick_count;
    for (int64_t b = 0; batch->next_sentence && b < batch->B; b++)
        batch->loss_count[LOSS_NSP] += batch->nsp[b] != LABEL_IGNORED;
}

static void view(const HostBatch *batch, const HostBatch *there, Micro *micro) {
    micro->picks = tensor_1d(there->picks, DT_I32, batch->pick_count);
    micro->pick_labels = tensor_1d(there->pick_labels, DT_I32, batch->pick_count);
    if (batch->loss_count[LOSS_NSP] > 0) micro->nsp = tensor_1d(there->nsp, DT_I32, batch->B);
}

/* ---- streams ---- */

/* Moves a cut to the start of the next document or, if there is none, of the next sentence. */
static Status align_cut(const Dataset *data, int64_t *cut) {
    const TokenStream *stream = &data->stream;
    int64_t size = token_stream_size(stream), document = 0, count = 0;
    if (*cut <= 0 || *cut >= size) return OK;
    DocumentCursor cursor;
    TRY(document_cursor_at(stream, *cut, &cursor));
    TRY(document_cursor_next(stream, &cursor, &document));
    if (document < size) {
        *cut = document;
        return OK;
    }
    int32_t sentence[1024];
    int64_t to = size - *cut < 1024 ? size : *cut + 1024;
    TRY(token_stream_sentences_within(stream, *cut, to, sentence, &count));
    if (count > 0) *cut += sentence[0];
    return OK;
}

/* Builds sentence pairs from the used part; *ret_found is false if every document is a single sentence. */
static Status open_pairs(Dataset *data, const DataSpec *spec, bool *ret_found) {
    int64_t begin = data->begin, end = data->begin + data->size;
    TRY(align_cut(data, &begin));
    TRY(align_cut(data, &end));
    TRY(pair_set_build(&data->pairs, &data->stream, begin, end, spec->seq - 3));
    *ret_found = data->pairs.count > 1;
    if (!*ret_found) return OK;
    data->begin = begin;
    data->size = data->tokens = end - begin;
    data->from_pairs = true;
    data->count = (int64_t)data->pairs.count;
    return OK;
}

static Status open_stream(Dataset *data, const DataSpec *spec, int64_t *ret_need) {
    *ret_need = 0;
    if (spec->next_sentence && token_stream_marked(&data->stream)) {
        bool found = false;
        TRY(open_pairs(data, spec, &found));
        if (found) return OK;
    }
    data->window = spec->seq - (spec->next_sentence ? 3 : 2);
    data->count = data->size / data->window;
    /* a random second part must fit before or after any window */
    *ret_need = spec->next_sentence ? 2 * data->window : data->window;
    return OK;
}

/* [CLS] A [SEP]. */
static Status fill_single(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, P = data->window;
    int32_t *tokens = batch->tokens + slot.b * T;
    tokens[0] = data->spec.special.cls;
    TRY(token_stream_read(&data->stream, data->begin + slot.index * P, P, tokens + 1));
    tokens[T - 1] = data->spec.special.sep;
    mask_row(data, slot, T, batch);
    return OK;
}

/* Start of a random run of `length` tokens that does not overlap the window at `at`; both offsets are
 * relative to the used part. A run always exists because the used part has at least two windows. */
static int64_t random_run(const Dataset *data, int64_t at, int64_t length, uint64_t draw) {
    int64_t before = at - length + 1, after = data->size - (at + data->window) - length + 1;
    if (before < 0) before = 0;
    if (after < 0) after = 0;
    int64_t choice = (int64_t)(((unsigned __int128)draw * (uint64_t)(before + after)) >> 64);
    return choice < before ? choice : at + data->window + (choice - before);
}

/* [CLS] A [SEP] B [SEP]: the window is split at a random point in its middle half. B is the second part or,
 * half of the time, a random run of the same length. */
static Status fill_pair(const Dataset *data, Slot slot, HostBatch *batch) {
    int64_t T = batch->T, P = data->window, at = slot.index * P;
    int32_t *tokens = batch->tokens + slot.b * T, *types = batch->types + slot.b * T;
    uint32_t draw[4];
    rng_block(rng_key(data->spec.seed, "data.pair", slot.epoch), slot.position, draw);
    int64_t low = P / 4 > 1 ? P / 4 : 1, high = P - low;
    int64_t split = low + (int64_t)((draw[0] * (uint64_t)(high - low + 1)) >> 32);
    int32_t random = (int32_t)(draw[1] >> 31);
    int64_t second = at + split;
    if (random) second = random_run(data, at, P - split, (uint64_t)draw[2] << 32 | draw[3]);

    tokens[0] = data->spec.special.cls;
    TRY(token_stream_read(&data->stream, data->begin + at, split, tokens + 1));
    tokens[split + 1] = data->spec.special.sep;
    TRY(token_stream_read(&data->stream, data->begin + second, P - split, tokens + split + 2));
    tokens[T - 1] = data->spec.special.sep;
    for (int64_t t = split + 2; t < T; t++) types[t] = 1;
    batch->nsp[slot.b] = random;
    mask_row(data, slot, T, batch);
    return OK;
}

/* [CLS] A [SEP] B [SEP] from marked sentences, then padding. */
static Status fill_sentences(const Dataset *data, Slot slot, HostBatch *batch) {
    const SpecialTokens *special = &data->spec.special;
    int64_t T = batch->T, row = slot.b * T;
    int32_t *tokens = batch->tokens + row, *types = batch->types + row, *labels = batch->labels + row;
    RngKey key = rng_key(data->spec.seed, "data.pair", slot.epoch);
    Pair pair;
    TRY(pair_draw(&data->pairs, &data->stream, key, slot.position, slot.index, labels, &pair));
    int64_t second = pair.a_size + 2, length = second + pair.b_size + 1;
    tokens[0] = special->cls;
    TRY(token_stream_read(&data->stream, pair.a, pair.a_size, tokens + 1));
    tokens[second - 1] = special->sep;
    TRY(token_stream_read(&data->stream, pair.b, pair.b_size, tokens + second));
    tokens[length - 1] = special->sep;
    for (int64_t t = second; t < length; t++) types[t] = 1;
    mask_row(data, slot, length, batch);
    for (int64_t t = length; t < T; t++) {
        tokens[t] = padding_of(&data->spec);
        labels[t] = LABEL_IGNORED;
    }
    batch->lens[slot.b] = (int32_t)length;
    batch->nsp[slot.b] = pair.random;
    return OK;
}

static Status fill_stream(const Dataset *data, Slot slot, HostBatch *batch) {
    if (data->from_pairs) return fill_sentences(data, slot, batch);
    return (data->spec.next_sentence ? fill_pair : fill_single)(data, slot, batch);
}

const TaskData data_mlm = {
    .formats =
        FORMATS_STREAM | FORMAT_BIT(FORMAT_IDS) | FORMAT_BIT(FORMAT_PAIRS) | FORMAT_BIT(FORMAT_CORNELL),
    .picks = true,
    .nothing = "every label is -100, which is ignored, or no token can be masked",
    .counted = counted,
    .check = check,
    .read = read_labels,
    .label = label,
    .open = open_stream,
    .fill = fill_stream,
    .count = count,
    .view = view,
};
