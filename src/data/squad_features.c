/* How an answer becomes two tokens, as in BERT's run_squad: its characters widen to whole words between white
 * space, the words to all of their tokens, and then the first run of tokens in there that is the answer's own
 * tokens is taken, so that "1895" is found in "(1895-1943)". */
#include "data/squad_features.h"

#include <string.h>

#include "base/memory.h"

void squad_features_done(SquadFeatures *features) {
    free(features->pool);
    free(features->place);
    free(features->asked);
    free(features->feature);
    *features = (SquadFeatures){0};
}

/* ---- settings ---- */

static Status settle(const SquadSpec *asked, const Tokenizer *tokenizer, SquadFeatures *features) {
    enum { LEAST = 8, SPECIALS = 3, WINDOW = 32 };
    SquadSpec spec = *asked;
    features->special = tokenizer_special(tokenizer);
    if (features->special.cls < 0 || features->special.sep < 0)
        return USAGE(
            "questions and contexts are joined by [CLS] and [SEP], and the vocabulary of this tokenizer "
            "(%s) has none",
            tokenizer_kind_name(tokenizer));
    if (spec.seq < LEAST)
        return USAGE("the sequence length is %lld, expected at least %d to hold a question and a context",
                     (long long)spec.seq, LEAST);
    if (!spec.doc_stride) spec.doc_stride = SQUAD_STRIDE;
    if (!spec.max_query) spec.max_query = SQUAD_QUERY;
    if (spec.doc_stride < 1 || spec.max_query < 1)
        return USAGE("the stride of windows and the longest question must be at least 1");
    if (spec.seq - SPECIALS - spec.max_query < WINDOW && spec.max_query > (spec.seq - SPECIALS) / 2)
        spec.max_query = (spec.seq - SPECIALS) / 2;
    features->spec = spec;
    return OK;
}

/* ---- tokens ---- */

typedef struct Making {
    SquadFeatures *features;
    const SquadSet *set;
    Encoder *encoder;
    TokenList list;
} Making;

static void making_done(Making *making) {
    encoder_free(making->encoder);
    token_list_done(&making->list);
}

/* Encodes a text into making->list. */
static Status encode(Making *making, SquadText text) {
    making->list.count = 0;
    TRY(encoder_add(making->encoder, text.data, text.size, &making->list));
    if (making->list.count > INT32_MAX) return FAILED("a text of SQuAD has %zu tokens", making->list.count);
    return OK;
}

static Status keep_tokens(Making *making, size_t count, SquadTokens *ret_tokens) {
    SquadFeatures *f = making->features;
    TRY(mem_grow(&f->pool, &f->pool_capacity, f->used + count + 1, sizeof *f->pool));
    TRY(mem_grow(&f->place, &f->place_capacity, f->used + count + 1, sizeof *f->place));
    for (size_t i = 0; i < count; i++) {
        const TokenPlace *place = &making->list.places[i];
        f->pool[f->used + i] = making->list.ids[i];
        f->place[f->used + i] = (SquadPlace){(uint32_t)place->start, (uint32_t)place->end};
    }
    *ret_tokens = (SquadTokens){f->used, (int32_t)count};
    f->used += count;
    return OK;
}

/* ---- answers ---- */

/* What BERT's code takes for white space between words; a narrow no-break space is one of them. */
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

/* Where character number `index` begins; the size when the text has fewer. */
static size_t byte_of(SquadText text, int64_t index) {
    size_t at = 0;
    for (; at < text.size; at++)
        if (((unsigned char)text.data[at] & 0xC0) != 0x80 && index-- == 0) return at;
    return at;
}

/* Whether the text stands at `at`, any white space being as good as other; *ret_end is where it ends. */
static bool stands_at(SquadText context, size_t at, SquadText text, size_t *ret_end) {
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

typedef struct Found {
    size_t start, end; /* bytes */
    bool is, moved;
} Found;

static Found find_answer(SquadText context, const SquadAnswer *answer) {
    SquadText text = trimmed(answer->text);
    Found found = {0};
    size_t lead = (size_t)(text.data - answer->text.data), end = 0;
    size_t from = byte_of(context, answer->start < 0 ? 0 : answer->start);
    if (text.size == 0) return found;
    if (answer->text.size <= context.size - from &&
        !memcmp(context.data + from, answer->text.data, answer->text.size))
        return (Found){from + lead, from + lead + text.size, .is = true};
    for (size_t at = 0; at < context.size; at++) {
        size_t distance = at < from ? from - at : at - from;
        if (found.is && distance >= (found.start < from ? from - found.start : found.start - from)) continue;
        if (stands_at(context, at, text, &end)) found = (Found){at, end, .is = true, .moved = true};
    }
    return found;
}

/* Widens a found answer to whole words. */
static void widen(SquadText context, Found *found) {
    size_t start = 0, at = 0;
    while (at < found->start) {
        size_t bytes = space_at(context, at);
        at += bytes ? bytes : 1;
        if (bytes) start = at;
    }
    found->start = start < found->start ? start : found->start;
    while (found->end < context.size && !space_at(context, found->end)) found->end++;
}

/* The tokens of a found answer; false when there are none. */
static Status find_tokens(Making *making, SquadText context, SquadText text, Found found, SquadAsked *asked) {
    const SquadFeatures *f = making->features;
    const SquadPlace *place = f->place + asked->context.at;
    const int32_t *pool = f->pool + asked->context.at;
    int32_t first = 0, end = asked->context.count;
    widen(context, &found);
    while (first < end && place[first].end <= found.start) first++;
    while (end > first && place[end - 1].start >= found.end) end--;
    if (first == end) {
        asked->lost = true;
        return OK;
    }
    TRY(encode(making, text));
    int32_t own = (int32_t)making->list.count;
    asked->first = first;
    asked->last = end - 1;
    for (int32_t at = first; own > 0 && at + own <= end; at++) {
        if (memcmp(pool + at, making->list.ids, (size_t)own * sizeof *pool)) continue;
        asked->first = at;
        asked->last = at + own - 1;
        break;
    }
    return OK;
}

static Status place_answer(Making *making, const SquadQuestion *question, SquadAsked *asked) {
    SquadCounts *counts = &making->features->counts;
    asked->first = asked->last = -1;
    if (question->impossible || !question->answers) return OK;
    const SquadAnswer *answer = &making->set->answer[question->first_answer];
    SquadText context = making->set->paragraph[question->paragraph].context;
    Found found = find_answer(context, answer);
    asked->lost = !found.is;
    if (found.is) TRY(find_tokens(making, context, answer->text, found, asked));
    counts->lost += asked->lost;
    counts->moved += found.moved && !asked->lost;
    return OK;
}

/* ---- windows ---- */

static Status add_feature(SquadFeatures *f, const SquadAsked *asked, int32_t first, int32_t count) {
    SquadFeature feature = {.asked = f->askeds, .first = first, .count = count};
    int32_t offset = asked->tokens.count + 2 - first;
    if (asked->lost)
        feature.start = feature.end = (int32_t)f->spec.seq;
    else if (asked->first >= first && asked->last >= 0 && asked->last < first + count)
        feature.start = asked->first + offset, feature.end = asked->last + offset;
    TRY(mem_grow(&f->feature, &f->feature_capacity, f->features + 1, sizeof feature));
    f->feature[f->features++] = feature;
    return OK;
}

static Status add_windows(SquadFeatures *f, SquadAsked *asked) {
    int32_t room = (int32_t)(f->spec.seq - asked->tokens.count - 3), total = asked->context.count;
    int64_t stride = f->spec.doc_stride;
    asked->feature = f->features;
    for (int32_t first = 0;;) {
        int32_t count = total - first < room ? total - first : room;
        TRY(add_feature(f, asked, first, count));
        if (first + count >= total) break;
        first += stride < count ? (int32_t)stride : count;
    }
    asked->features = (int32_t)(f->features - asked->feature);
    return OK;
}

static Status add_question(Making *making, size_t number, SquadTokens context) {
    SquadFeatures *f = making->features;
    const SquadQuestion *question = &making->set->question[number];
    SquadAsked asked = {.context = context, .number = number};
    TRY(encode(making, question->text));
    size_t count = making->list.count;
    f->counts.questions++;
    if (count > (size_t)f->spec.max_query) {
        count = (size_t)f->spec.max_query;
        f->counts.cut++;
    }
    TRY(keep_tokens(making, count, &asked.tokens));
    TRY(place_answer(making, question, &asked));
    if (asked.lost && !f->spec.keep_lost) return OK;
    TRY(add_windows(f, &asked));
    TRY(mem_grow(&f->asked, &f->asked_capacity, f->askeds + 1, sizeof asked));
    f->asked[f->askeds++] = asked;
    return OK;
}

Status squad_features_make(SquadFeatures *features, const SquadSet *set, const Tokenizer *tokenizer,
                           const SquadSpec *spec) {
    CLEANUP(making_done) Making making = {.features = features, .set = set};
    EncodeOptions options = {.places = true, .plain = true};
    TRY(settle(spec, tokenizer, features));
    TRY(encoder_new(&making.encoder, tokenizer, &options));
    for (size_t i = 0; i < set->paragraphs; i++) {
        const SquadParagraph *paragraph = &set->paragraph[i];
        SquadTokens context;
        TRY(encode(&making, paragraph->context));
        TRY(keep_tokens(&making, making.list.count, &context));
        features->counts.empty += context.count == 0;
        for (size_t k = 0; k < paragraph->questions; k++)
            TRY(add_question(&making, paragraph->first_question + k, context));
    }
    features->counts.features = (int64_t)features->features;
    return OK;
}

/* ---- using them ---- */

int32_t squad_feature_fill(const SquadFeatures *features, size_t index, int32_t *tokens, int32_t *types) {
    const SquadFeature *feature = &features->feature[index];
    const SquadAsked *asked = &features->asked[feature->asked];
    int32_t at = 0, second = asked->tokens.count + 2;
    tokens[at++] = features->special.cls;
    memcpy(tokens + at, features->pool + asked->tokens.at, (size_t)asked->tokens.count * sizeof *tokens);
    at += asked->tokens.count;
    tokens[at++] = features->special.sep;
    memcpy(tokens + at, features->pool + asked->context.at + feature->first,
           (size_t)feature->count * sizeof *tokens);
    at += feature->count;
    tokens[at++] = features->special.sep;
    for (int32_t t = 0; t < at; t++) types[t] = t >= second;
    return at;
}

bool squad_is_max_context(const SquadFeatures *features, const SquadFeature *feature, int32_t token) {
    const SquadAsked *asked = &features->asked[feature->asked];
    const SquadFeature *window = features->feature + asked->feature, *best = NULL;
    double best_score = 0;
    for (int32_t i = 0; i < asked->features; i++) {
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
        {counts->moved, "answer was not where answer_start says and was taken from the nearest place",
         "answers were not where answer_start says and were taken from the nearest place"},
        {counts->lost, "answer is nowhere in its context: the question is left out of the loss",
         "answers are nowhere in their contexts: the questions are left out of the loss"},
        {counts->cut, "question was too long and was cut", "questions were too long and were cut"},
        {counts->empty, "context has no text", "contexts have no text"},
    };
    CLEANUP(mem_freep) char *text = NULL;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (!row[i].count) continue;
        CLEANUP(mem_freep) char *before = text;
        text = NULL;
        TRY(str_format(&text, "%s%s%lld %s", before ? before : "", before ? "; " : "",
                       (long long)row[i].count, row[i].count == 1 ? row[i].one : row[i].many));
    }
    *ret_text = text;
    text = NULL;
    return OK;
}
