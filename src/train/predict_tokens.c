/* Predictions of heads that have values for tokens. Logits over the vocabulary are reduced to the most
 * probable tokens where they are computed: the values of a picked row are the loss of its label, whether the
 * label is the most probable token, and then `top` pairs of a token and its probability. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/mask.h"
#include "model/head.h"
#include "train/predictions.h"

enum { NLL, HIT, TOP };

typedef struct Tokens {
    const Job *job;
    const Dataset *data;
    Predictions *out;
    int64_t count, stride;
    bool decoder, masks, pairs; /* which heads are used */
    int32_t *rows;              /* that were picked of a batch */
    float *follows;             /* (count) with pairs: the probability that the second text follows */
} Tokens;

static void tokens_done(Tokens *tokens) {
    free(tokens->rows);
    free(tokens->follows);
}

static Status fill_rows(void *context, int64_t at, HostBatch *batch) {
    const Tokens *tokens = context;
    if (tokens->stride) return dataset_fill_windows(tokens->data, tokens->stride, at, batch);
    return dataset_fill(tokens->data, (uint64_t)at, false, batch);
}

/* Whether a language model's tokens after the text are wanted, which this row predicts. */
static bool is_last(const Tokens *tokens, const HostBatch *batch, int32_t row) {
    return tokens->decoder && !tokens->out->labeled && row % batch->T == batch->lens[row / batch->T] - 1;
}

static int64_t pick(void *context, const HostBatch *batch, int32_t *rows) {
    const Tokens *tokens = context;
    int32_t mask = tokens->job->special.mask;
    int64_t count = 0;
    for (int32_t row = 0; row < batch->B * batch->T; row++) {
        bool padding = row % batch->T >= batch->lens[row / batch->T];
        bool wanted = batch->labels[row] != LABEL_IGNORED || is_last(tokens, batch, row);
        if (!tokens->decoder && !tokens->out->labeled) wanted = batch->tokens[row] == mask;
        if (wanted && !padding) rows[count++] = row;
    }
    return count;
}

/* Writes the most probable tokens, the first of equals first, with their logits. */
static void find_top(const float *logits, int64_t vocab, int64_t top, float *out) {
    int64_t count = 0;
    for (int64_t v = 0; v < vocab; v++) {
        if (count == top && !(logits[v] > out[2 * top - 1])) continue;
        int64_t at = count < top ? count++ : top - 1;
        for (; at > 0 && logits[v] > out[2 * at - 1]; at--)
            memcpy(out + 2 * at, out + 2 * at - 2, 2 * sizeof *out);
        out[2 * at] = (float)v;
        out[2 * at + 1] = logits[v];
    }
}

static void reduce(void *context, const HostBatch *batch, int32_t row, const float *logits, float *out) {
    const Tokens *tokens = context;
    int64_t vocab = tokens->job->model->config.vocab, top = tokens->out->top, best = 0;
    int32_t label = batch->labels[row];
    double sum = 0;
    for (int64_t v = 1; v < vocab; v++)
        if (logits[v] > logits[best]) best = v;
    for (int64_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - (double)logits[best]);
    double log_sum = (double)logits[best] + log(sum);
    out[NLL] = label == LABEL_IGNORED ? 0 : (float)(log_sum - (double)logits[label]);
    out[HIT] = label == best;
    memset(out + TOP, 0, (size_t)(2 * top) * sizeof *out);
    if (!isfinite(sum)) out[NLL] = NAN;
    if (!isfinite(sum) || (tokens->decoder && !is_last(tokens, batch, row))) return;
    find_top(logits, vocab, top, out + TOP);
    for (int64_t i = 0; i < top; i++)
        out[TOP + 2 * i + 1] = (float)exp((double)out[TOP + 2 * i + 1] - log_sum);
}

/* ---- rows ---- */

static Status top_json(const Tokens *tokens, const float *values, json_t **ret_list) {
    CLEANUP(json_decrefp) json_t *list = json_array();
    int64_t vocab = tokens->job->model->config.vocab,
            top = tokens->out->top < vocab ? tokens->out->top : vocab;
    for (int64_t i = 0; i < top; i++) {
        json_t *token = NULL;
        TRY(predictions_token(tokens->job, (int32_t)values[TOP + 2 * i], values[TOP + 2 * i + 1], &token));
        if (json_array_append_new(list, token) != 0) return FAILED("out of memory while writing predictions");
    }
    return MOVE(ret_list, list);
}

/* What a mask stood for, and its probability. */
static Status put_target(const Tokens *tokens, int32_t id, float nll, json_t *mask) {
    CLEANUP(json_decrefp) json_t *target = NULL;
    const json_t *text;
    TRY(predictions_token(tokens->job, id, (float)exp(-(double)nll), &target));
    if ((text = json_object_get(target, "token"))) TRY(json_put(mask, "target", json_clone(text)));
    TRY(json_put(mask, "target_id", json_integer(id)));
    return json_put(mask, "target_probability", json_incref(json_object_get(target, "probability")));
}

static Status put_mask(const Tokens *tokens, const HostBatch *batch, int32_t row, const float *values,
                       json_t *list) {
    json_t *mask = json_object(), *top = NULL;
    if (json_array_append_new(list, mask) != 0) return FAILED("out of memory while writing predictions");
    TRY(json_put(mask, "position", json_integer(row % batch->T)));
    TRY(top_json(tokens, values, &top));
    TRY(json_put(mask, "tokens", top));
    return tokens->out->labeled ? put_target(tokens, batch->labels[row], values[NLL], mask) : OK;
}

static Status put_pair(const Tokens *tokens, const HostBatch *batch, int64_t b, int64_t index, json_t *row) {
    TRY(json_put(row, "next_sentence", json_float(tokens->follows[index])));
    return tokens->out->labeled ? json_put(row, "next_sentence_target", json_boolean(batch->nsp[b] == 0))
                                : OK;
}

/* A text's losses and, unless it is labeled, the tokens that may follow it. */
static Status put_text(const Tokens *tokens, const HostBatch *batch, const int32_t *rows, int64_t count,
                       const float *values, json_t *row) {
    int64_t each = TOP + 2 * tokens->out->top, terms = 0, hits = 0;
    const float *last = NULL;
    json_t *next = NULL;
    double nll = 0;
    for (int64_t i = 0; i < count; i++, values += each) {
        if (is_last(tokens, batch, rows[i])) last = values;
        if (batch->labels[rows[i]] == LABEL_IGNORED) continue;
        terms++;
        nll += (double)values[NLL];
        hits += values[HIT] > 0;
    }
    TRY(json_put(row, "tokens", json_integer(terms)));
    TRY(json_put(row, "nll", json_real(nll)));
    TRY(json_put(row, "loss", terms ? json_real(nll / (double)terms) : json_null()));
    TRY(json_put(row, "accuracy", terms ? json_real((double)hits / (double)terms) : json_null()));
    if (tokens->out->labeled) return OK;
    TRY(top_json(tokens, last, &next));
    return json_put(row, "next", next);
}

static Status put_row(const Tokens *tokens, const HostBatch *batch, int64_t b, int64_t index,
                      const int32_t *rows, int64_t count, const float *values) {
    CLEANUP(json_decrefp) json_t *row = NULL;
    TRY(predictions_row(tokens->out, tokens->data, index, &row));
    if (!row) return OK;
    if (tokens->decoder) TRY(put_text(tokens, batch, rows, count, values, row));
    if (tokens->masks) {
        json_t *list = json_array();
        TRY(json_put(row, "masks", list));
        for (int64_t i = 0; i < count; i++)
            TRY(put_mask(tokens, batch, rows[i], values + i * (TOP + 2 * tokens->out->top), list));
    }
    if (tokens->pairs) TRY(put_pair(tokens, batch, b, index, row));
    return predictions_put(tokens->out, row);
}

static Status consume(void *context, int64_t at, const HostBatch *batch, const float *values) {
    const Tokens *tokens = context;
    int64_t each = TOP + 2 * tokens->out->top, count = pick(context, batch, tokens->rows), first = 0;
    TRY(predictions_check(values, count * each));
    for (int64_t b = 0; b < batch->B; b++) {
        int64_t end = first;
        while (end < count && tokens->rows[end] / batch->T == b) end++;
        TRY(put_row(tokens, batch, b, at + b, tokens->rows + first, end - first, values + first * each));
        first = end;
    }
    return OK;
}

/* ---- next sentence ---- */

static Status consume_pairs(void *context, int64_t at, const HostBatch *batch, const float *logits) {
    const Tokens *tokens = context;
    TRY(predictions_check(logits, 2 * batch->B));
    for (int64_t b = 0; b < batch->B; b++) {
        tokens->follows[at + b] = (float)(1 / (1 + exp((double)logits[2 * b + 1] - (double)logits[2 * b])));
        if (!tokens->masks) TRY(put_row(tokens, batch, b, at + b, NULL, 0, NULL));
    }
    return OK;
}

static Status run_pairs(Tokens *tokens) {
    ScoreWork work = {.head = HEAD_NSP,
                      .seq = tokens->job->seq,
                      .width = 2,
                      .context = tokens,
                      .fill = fill_rows,
                      .consume = consume_pairs};
    TRY(mem_new((size_t)tokens->count, sizeof *tokens->follows, &tokens->follows));
    return job_scores(tokens->job, tokens->count, &work);
}

/* ---- all ---- */

static Status check_masks(const Tokens *tokens) {
    CLEANUP(host_batch_freep) HostBatch *batch = NULL;
    if (tokens->out->labeled || !tokens->masks || tokens->pairs) return OK;
    TRY(host_batch_new(&batch, 1, tokens->job->seq));
    for (int64_t at = 0; at < tokens->count; at++) {
        TRY(dataset_fill(tokens->data, (uint64_t)at, false, batch));
        for (int64_t t = 0; t < batch->lens[0]; t++)
            if (batch->tokens[t] == tokens->job->special.mask) return OK;
    }
    return USAGE("no row has the mask token; put it (such as [MASK]) where a token is to be predicted");
}

static Status find_heads(Tokens *tokens) {
    const ModelConfig *config = &tokens->job->model->config;
    bool labeled = tokens->out->labeled;
    tokens->decoder = config_has(config, OUTPUT_LM);
    if (tokens->decoder && labeled) tokens->out->top = 0;
    tokens->masks = config_has(config, OUTPUT_MLM);
    tokens->pairs = config_has(config, OUTPUT_NSP) && (labeled || dataset_paired(tokens->data));
    if (!tokens->decoder && !tokens->masks && !tokens->pairs)
        return USAGE("the model says only whether a text follows another; name the second text's field with "
                     "{pair-field}");
    return check_masks(tokens);
}

Status predict_tokens(const Job *job, const Dataset *data, int64_t limit, int64_t stride, Predictions *out) {
    CLEANUP(tokens_done)
    Tokens tokens = {.job = job, .data = data, .out = out, .count = dataset_count(data), .stride = stride};
    if (stride) tokens.count = dataset_windows(data, stride);
    if (limit > 0 && limit < tokens.count) tokens.count = limit;
    TRY(find_heads(&tokens));
    if (tokens.pairs) TRY(run_pairs(&tokens));
    if (!tokens.decoder && !tokens.masks) return OK;
    int64_t each = TOP + 2 * out->top;
    TRY(mem_new((size_t)(job->runner->spec.micro_batch * job->seq), sizeof *tokens.rows, &tokens.rows));
    ScoreWork work = {.head = tokens.decoder ? HEAD_LM : HEAD_MLM,
                      .seq = job->seq,
                      .width = job->seq * each,
                      .context = &tokens,
                      .fill = fill_rows,
                      .consume = consume,
                      .pick = pick,
                      .each = each,
                      .reduce = reduce};
    return job_scores(job, tokens.count, &work);
}

/* ---- spans of token ids ---- */

typedef struct Spans {
    const Job *job;
    const Dataset *data;
    Predictions *out;
} Spans;

static Status fill_spans(void *context, int64_t at, HostBatch *batch) {
    const Spans *spans = context;
    return dataset_fill(spans->data, (uint64_t)at, false, batch);
}

static double log_sum_exp(const float *logits, int64_t T) {
    double max = -INFINITY, sum = 0;
    for (int64_t t = 0; t < T; t++)
        if ((double)logits[2 * t] > max) max = (double)logits[2 * t];
    for (int64_t t = 0; t < T; t++) sum += exp((double)logits[2 * t] - max);
    return max + log(sum);
}

/* The most probable start and end within the text, in this order; logits (T,2). */
static Status put_span(const Spans *spans, const HostBatch *batch, int64_t b, const float *logits,
                       json_t *row) {
    int64_t from = 0, start = 0, end = 0;
    double best = -INFINITY;
    for (int64_t t = 0; t < batch->lens[b]; t++) {
        if (logits[2 * t] > logits[2 * from]) from = t;
        double score = (double)logits[2 * from] + (double)logits[2 * t + 1];
        if (score > best) best = score, start = from, end = t;
    }
    double probability =
        exp(best - log_sum_exp(logits, batch->lens[b]) - log_sum_exp(logits + 1, batch->lens[b]));
    TRY(json_put(row, "start", json_integer(start)));
    TRY(json_put(row, "end", json_integer(end)));
    TRY(json_put(row, "probability", json_float((float)probability)));
    if (!spans->out->labeled) return OK;
    json_t *targets = json_pack("[i,i]", batch->span[b], batch->span[batch->B + b]);
    return json_put(row, "targets", targets);
}

static Status consume_spans(void *context, int64_t at, const HostBatch *batch, const float *logits) {
    const Spans *spans = context;
    TRY(predictions_check(logits, 2 * batch->B * batch->T));
    for (int64_t b = 0; b < batch->B; b++) {
        CLEANUP(json_decrefp) json_t *row = NULL;
        TRY(predictions_row(spans->out, spans->data, at + b, &row));
        if (row) TRY(put_span(spans, batch, b, logits + 2 * b * batch->T, row));
        TRY(predictions_put(spans->out, row));
    }
    return OK;
}

Status predict_spans(const Job *job, const Dataset *data, int64_t limit, Predictions *out) {
    Spans spans = {job, data, out};
    int64_t count = dataset_count(data);
    ScoreWork work = {.head = HEAD_SPAN,
                      .seq = job->seq,
                      .width = 2 * job->seq,
                      .context = &spans,
                      .fill = fill_spans,
                      .consume = consume_spans};
    return job_scores(job, limit > 0 && limit < count ? limit : count, &work);
}
