/* Maps answers to tokens as BERT's run_squad does: the answer's characters are extended to whole words
 * between white space, and these to all of their tokens. Within that range, the first run that equals the
 * answer's own tokens is used, so that "1895" is found in "(1895-1943)". */
#include "data/squad_features.h"

#include <string.h>

#include "base/memory.h"

void squad_features_done(SquadFeatures *features) {
    free(features->pool);
    free(features->offsets);
    free(features->query);
    free(features->feature);
    token_template_done(&features->pair);
    *features = (SquadFeatures){0};
}

/* ---- settings ---- */

static Status resolve_spec(const SquadSpec *requested, const Tokenizer *tokenizer, SquadFeatures *features) {
    enum { MIN_SEQ = 8, MIN_TEXT = 5, WINDOW = 32 };
    SquadSpec spec = *requested;
    const TokenTemplate *pair = tokenizer_template(tokenizer, true);
    TRY(token_template_check_once(pair, true));
    TRY(token_template_check_types(pair, spec.types));
    if (!features->pair.count) TRY(token_template_copy(&features->pair, pair));
    features->cls = tokenizer_special(tokenizer).cls;
    int64_t special = token_template_special(pair);
    int64_t minimum = special + MIN_TEXT > MIN_SEQ ? special + MIN_TEXT : MIN_SEQ;
    if (spec.seq < minimum)
        return USAGE("the sequence length is %lld; expected at least %lld to fit a question and a context",
                     (long long)spec.seq, (long long)minimum);
    if (!spec.doc_stride) spec.doc_stride = SQUAD_STRIDE;
    if (!spec.max_query) spec.max_query = SQUAD_QUERY;
    if (spec.doc_stride < 1 || spec.max_query < 1)
        return USAGE("the window stride and the maximum question length must be at least 1");
    if (spec.seq - special - spec.max_query < WINDOW && spec.max_query > (spec.seq - special) / 2)
        spec.max_query = (spec.seq - special) / 2;
    features->spec = spec;
    return OK;
}

/* ---- tokens ---- */

typedef struct Builder {
    SquadFeatures *features;
    const SquadSet *set;
    Encoder *encoder;
    TokenList list;
} Builder;

static void builder_done(Builder *builder) {
    encoder_free(builder->encoder);
    token_list_done(&builder->list);
}

/* Encodes a text into builder->list. */
static Status encode(Builder *builder, SquadText text) {
    builder->list.count = 0;
    TRY(encoder_add(builder->encoder, text.data, text.size, &builder->list));
    if (builder->list.count > INT32_MAX)
        return FAILED("a SQuAD text has %zu tokens, which is too many", builder->list.count);
    return OK;
}

static Status keep_tokens(Builder *builder, size_t count, SquadTokens *ret_tokens) {
    SquadFeatures *f = builder->features;
    TRY(mem_grow(&f->pool, &f->pool_capacity, f->used + count + 1, sizeof *f->pool));
    TRY(mem_grow(&f->offsets, &f->offsets_capacity, f->used + count + 1, sizeof *f->offsets));
    for (size_t i = 0; i < count; i++) {
        const TokenOffset *source = &builder->list.offsets[i];
        f->pool[f->used + i] = builder->list.ids[i];
        f->offsets[f->used + i] = (SquadOffsets){(uint32_t)source->start, (uint32_t)source->end};
    }
    *ret_tokens = (SquadTokens){f->used, (int32_t)count};
    f->used += count;
    return OK;
}

/* ---- answers ---- */

/* Bytes of white space at `at` as BERT's code defines it, which includes the narrow no-break space; 0: not
 * white space. */
static size_t space_at(SquadText text, size_t at) {
    unsigned char c = (unsigned char)text.data[at];
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') return 1;
    return text.size - at >= 3 && !memcmp(text.data + at, "\xE2\x80\xAF", 3) ? 3 : 0;
}

static size_t skip_spaces(SquadText text, size_t at) {
    for (size_t bytes; at < text.size && (bytes = space_at(text, at)); at += bytes) continue;
    return at;
}

static SquadText trimmed(SquadText text) {
    size_t start = skip_spaces(text, 0), end = start;
    for (size_t at = start; at < text.size;) {
        size_t bytes = space_at(text, at);
        at += bytes ? bytes : 1;
        if (!bytes) end = at;
    }
    return (SquadText){text.data + start, end - start};
}

/* Byte offset of character `index`; the size if the text is shorter. */
static size_t byte_of(SquadText text, int64_t index) {
    size_t at = 0;
    for (; at < text.size; at++)
        if (((unsigned char)text.data[at] & 0xC0) != 0x80 && index-- == 0) return at;
    return at;
}

/* Whether `text` matches the context at `at`, where any white space matches any other; *ret_end is the end of
 * the match. */
static bool matches_at(SquadText context, size_t at, SquadText text, size_t *ret_end) {
    size_t i = 0;
    while (i < text.size) {
        size_t bytes = space_at(text, i);
        if (bytes) {
            size_t next = skip_spaces(context, at);
            if (next == at) return false;
            at = next;
            i = skip_spaces(text, i);
        } else {
            if (at == context.size || context.data[at] != text.data[i]) return false;
            at++;
            i++;
        }
    }
    *ret_end = at;
    return true;
}

typedef struct Match {
    size_t start, end; /* byte range in the context */
    bool is, moved;
} Match;

static Match find_answer(SquadText context, const SquadAnswer *answer) {
    SquadText text = trimmed(answer->text);
    Match match = {0};
    size_t lead = (size_t)(text.data - answer->text.data), end = 0;
    size_t from = byte_of(context, answer->start < 0 ? 0 : answer->start);
    if (text.size == 0) return match;
    if (answer->text.size <= context.size - from &&
        !memcmp(context.data + from, answer->text.data, answer->text.size))
        return (Match){from + lead, from + lead + text.size, .is = true};
    for (size_t at = 0; at < context.size; at++) {
        size_t distance = at < from ? from - at : at - from;
        if (match.is && distance >= (match.start < from ? from - match.start : match.start - from)) continue;
        if (matches_at(context, at, text, &end)) match = (Match){at, end, .is = true, .moved = true};
    }
    return match;
}

/* Extends an answer to whole words. */
static void widen(SquadText context, Match *match) {
    size_t start = 0, at = 0;
    while (at < match->start) {
        size_t bytes = space_at(context, at);
        at += bytes ? bytes : 1;
        if (bytes) start = at;
    }
    match->start = start < match->start ? start : match->start;
    while (match->end < context.size && !space_at(context, match->end)) match->end++;
}

/* Finds the tokens of an answer; sets query->lost if it covers no token. */
static Status find_tokens(Builder *builder, SquadText context, SquadText text, Match match,
                          SquadQuery *query) {
    const SquadFeatures *f = builder->features;
    const SquadOffsets *offsets = f->offsets + query->context.at;
    const int32_t *pool = f->pool + query->context.at;
    int32_t first = 0, end = query->context.count;
    widen(context, &match);
    while (first < end && offsets[first].end <= match.start) first++;
    while (end > first && offsets[end - 1].start >= match.end) end--;
    if (first == end) {
        query->lost = true;
        return OK;
    }
    TRY(encode(builder, text));
    int32_t own = (int32_t)builder->list.count;
    query->first = first;
    query->last = end - 1;
    for (int32_t at = first; own > 0 && at + own <= end; at++) {
        if (memcmp(pool + at, builder->list.ids, (size_t)own * sizeof *pool)) continue;
        query->first = at;
        query->last = at + own - 1;
        break;
    }
    return OK;
}

static Status locate_answer(Builder *builder, const SquadQuestion *question, SquadQuery *query) {
    SquadCounts *counts = &builder->features->counts;
    query->first = query->last = -1;
    if (question->impossible || !question->answers) return OK;
    const SquadAnswer *answer = &builder->set->answer[question->first_answer];
    SquadText context = builder->set->paragraph[question->paragraph].context;
    Match match = find_answer(context, answer);
    query->lost = !match.is;
    if (match.is) TRY(find_tokens(builder, context, answer->text, match, query));
    counts->lost += query->lost;
    counts->moved += match.moved && !query->lost;
    return OK;
}

/* ---- windows ---- */

static int32_t offset_of(const SquadFeatures *f, const SquadQuery *query) {
    return (int32_t)token_template_find(&f->pair, PIECE_SECOND, 0, query->tokens.count, 0);
}

static int32_t none_of(const SquadFeatures *f, const SquadQuery *query, int32_t count) {
    int64_t cls = token_template_find(&f->pair, PIECE_TOKEN, f->cls, query->tokens.count, count);
    return cls < 0 ? 0 : (int32_t)cls;
}

static Status add_feature(SquadFeatures *f, const SquadQuery *query, int32_t first, int32_t count) {
    SquadFeature feature = {.query = f->queries, .first = first, .count = count};
    int32_t offset = offset_of(f, query) - first;
    feature.start = feature.end = none_of(f, query, count);
    if (query->lost)
        feature.start = feature.end = (int32_t)f->spec.seq;
    else if (query->first >= first && query->last >= 0 && query->last < first + count)
        feature.start = query->first + offset, feature.end = query->last + offset;
    TRY(mem_grow(&f->feature, &f->feature_capacity, f->features + 1, sizeof feature));
    f->feature[f->features++] = feature;
    return OK;
}

static Status add_windows(SquadFeatures *f, SquadQuery *query) {
    int32_t room = (int32_t)(f->spec.seq - query->tokens.count - token_template_special(&f->pair));
    int32_t total = query->context.count;
    int64_t stride = f->spec.doc_stride;
    query->feature = f->features;
    for (int32_t first = 0;;) {
        int32_t count = total - first < room ? total - first : room;
        TRY(add_feature(f, query, first, count));
        if (first + count >= total) break;
        first += stride < count ? (int32_t)stride : count;
    }
    query->features = (int32_t)(f->features - query->feature);
    return OK;
}

static Status add_question(Builder *builder, size_t number, SquadTokens context) {
    SquadFeatures *f = builder->features;
    const SquadQuestion *question = &builder->set->question[number];
    SquadQuery query = {.context = context, .number = number};
    TRY(encode(builder, question->text));
    size_t count = builder->list.count;
    f->counts.questions++;
    if (count > (size_t)f->spec.max_query) {
        count = (size_t)f->spec.max_query;
        f->counts.cut++;
    }
    TRY(keep_tokens(builder, count, &query.tokens));
    TRY(locate_answer(builder, question, &query));
    if (query.lost && !f->spec.keep_lost) return OK;
    TRY(add_windows(f, &query));
    TRY(mem_grow(&f->query, &f->query_capacity, f->queries + 1, sizeof query));
    f->query[f->queries++] = query;
    return OK;
}

Status squad_features_make(SquadFeatures *features, const SquadSet *set, const Tokenizer *tokenizer,
                           const SquadSpec *spec) {
    CLEANUP(builder_done) Builder builder = {.features = features, .set = set};
    EncodeOptions options = {.offsets = true, .plain = true};
    TRY(resolve_spec(spec, tokenizer, features));
    TRY(encoder_new(&builder.encoder, tokenizer, &options));
    for (size_t i = 0; i < set->paragraphs; i++) {
        const SquadParagraph *paragraph = &set->paragraph[i];
        SquadTokens context;
        TRY(encode(&builder, paragraph->context));
        TRY(keep_tokens(&builder, builder.list.count, &context));
        features->counts.empty += context.count == 0;
        for (size_t k = 0; k < paragraph->questions; k++)
            TRY(add_question(&builder, paragraph->first_question + k, context));
    }
    features->counts.features = (int64_t)features->features;
    return OK;
}

/* ---- sequences ---- */

int32_t squad_feature_fill(const SquadFeatures *features, size_t index, int32_t *tokens, int32_t *types) {
    const SquadFeature *feature = &features->feature[index];
    const SquadQuery *query = &features->query[feature->query];
    TokenSpan question = {features->pool + query->tokens.at, query->tokens.count};
    TokenSpan window = {features->pool + query->context.at + feature->first, feature->count};
    return (int32_t)token_template_fill(&features->pair, question, window, tokens, types);
}

int32_t squad_feature_length(const SquadFeatures *features, const SquadFeature *feature) {
    const SquadQuery *query = &features->query[feature->query];
    return (int32_t)token_template_length(&features->pair, query->tokens.count, feature->count);
}

int32_t squad_feature_offset(const SquadFeatures *features, const SquadFeature *feature) {
    return offset_of(features, &features->query[feature->query]);
}

int32_t squad_feature_none(const SquadFeatures *features, const SquadFeature *feature) {
    return none_of(features, &features->query[feature->query], feature->count);
}

bool squad_is_max_context(const SquadFeatures *features, const SquadFeature *feature, int32_t token) {
    const SquadQuery *query = &features->query[feature->query];
    const SquadFeature *window = features->feature + query->feature, *best = NULL;
    double best_score = 0;
    for (int32_t i = 0; i < query->features; i++) {
        int32_t left = token - window[i].first, right = window[i].first + window[i].count - 1 - token;
        if (left < 0 || right < 0) continue;
        double score = (left < right ? left : right) + 0.01 * window[i].count;
        if (best && score <= best_score) continue;
        best = &window[i];
        best_score = score;
    }
    return best == feature;
}

Status squad_counts_text(const SquadCounts *counts, char **ret_text) {
    const struct {
        int64_t count;
        const char *one, *many;
    } row[] = {
        {counts->moved, "answer was not at its answer_start and was moved to the nearest match",
         "answers were not at their answer_start and were moved to the nearest match"},
        {counts->lost, "answer does not occur in its context; the question is excluded from the loss",
         "answers do not occur in their contexts; the questions are excluded from the loss"},
        {counts->cut, "question was truncated", "questions were truncated"},
        {counts->empty, "context is empty", "contexts are empty"},
    };
    CLEANUP(mem_freep) char *text = NULL;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (!row[i].count) continue;
        CLEANUP(mem_freep) char *before = text;
        text = NULL;
        TRY(str_format(&text, "%s%s%lld %s", before ? before : "", before ? "; " : "",
                       (long long)row[i].count, row[i].count == 1 ? row[i].one : row[i].many));
    }
    return MOVE(ret_text, text);
}
