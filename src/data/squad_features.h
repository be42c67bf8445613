/* SQuAD questions as BERT sequences, built as in BERT's own code:
 *
 *   [CLS] question [SEP] window of the context [SEP]
 *
 * or as the post-processor of the tokenizer arranges a pair of texts. The question is truncated to
 * `max_query` tokens. A context that does not fit is covered by windows that start `doc_stride` tokens
 * apart, each a separate example. The labels are the positions of the first and the last token of the first
 * answer. If the window does not contain that whole answer, or the question has no answer, both are the
 * position of [CLS], or 0 if the sequence has no [CLS].
 *
 * Contexts and questions are tokenized once and kept; sequences are assembled on request.
 */
#ifndef WEFT_DATA_SQUAD_FEATURES_H
#define WEFT_DATA_SQUAD_FEATURES_H

#include "data/squad.h"
#include "tokenizer/tokenizer.h"

enum { SQUAD_SEQ = 384, SQUAD_STRIDE = 128, SQUAD_QUERY = 64 }; /* BERT's published defaults */

typedef struct SquadSpec {
    int64_t seq;                   /* sequence length T */
    int64_t doc_stride, max_query; /* 0: published default; max_query is reduced if T is small */
    bool keep_lost; /* keep questions whose answer is not in the context, with their labels ignored */
    int64_t types;  /* number of token types of the model; 0: not checked */
} SquadSpec;

/* Byte range of the context that a token covers. */
typedef struct SquadOffsets {
    uint32_t start, end;
} SquadOffsets;

/* A range of tokens in the pool. */
typedef struct SquadTokens {
    size_t at;
    int32_t count;
} SquadTokens;

typedef struct SquadQuery {
    SquadTokens tokens;  /* the question, truncated */
    SquadTokens context; /* its paragraph's context */
    size_t feature;      /* first window */
    int32_t features;    /* number of windows */
    size_t number;       /* index of the question in the SquadSet */
    int32_t first, last; /* context tokens of the answer; -1: no answer */
    bool lost;           /* there is an answer, but it does not occur in the context */
} SquadQuery;

typedef struct SquadFeature {
    size_t query;
    int32_t first, count; /* context tokens in the window */
    int32_t start, end;   /* label positions; T: ignored */
} SquadFeature;

/* Statistics for warnings. */
typedef struct SquadCounts {
    int64_t questions, features;
    int64_t moved; /* answers that were not at their answer_start but were found elsewhere */
    int64_t lost;  /* answers that do not occur in the context; the question is dropped unless keep_lost */
    int64_t cut;   /* truncated questions */
    int64_t empty; /* contexts without tokens */
} SquadCounts;

/* Initialize with zeros. */
typedef struct SquadFeatures {
    SquadSpec spec; /* with defaults filled in */
    TokenTemplate pair;
    int32_t cls; /* -1: none */
    int32_t *pool;
    SquadOffsets *offsets; /* parallel to the pool; meaningful for contexts only */
    SquadQuery *query;
    SquadFeature *feature;
    size_t used, queries, features;
    size_t pool_capacity, offsets_capacity, query_capacity, feature_capacity;
    SquadCounts counts;
} SquadFeatures;

/* Appends all questions of a set. */
MUST_USE Status squad_features_make(SquadFeatures *features, const SquadSet *set, const Tokenizer *tokenizer,
                                    const SquadSpec *spec);
void squad_features_done(SquadFeatures *features);

/* Writes the sequence and its token types, up to T entries each, without padding; returns the length. */
int32_t squad_feature_fill(const SquadFeatures *features, size_t index, int32_t *tokens, int32_t *types);
/* Length of the sequence. */
int32_t squad_feature_length(const SquadFeatures *features, const SquadFeature *feature);
/* Position in the sequence of the window's first context token. */
int32_t squad_feature_offset(const SquadFeatures *features, const SquadFeature *feature);
/* Position that stands for "no answer": that of [CLS], else 0. */
int32_t squad_feature_none(const SquadFeatures *features, const SquadFeature *feature);
/* Whether this window gives the token the most context on its shorter side, among all windows that contain
 * it. The longer window wins a tie, then the first one. */
bool squad_is_max_context(const SquadFeatures *features, const SquadFeature *feature, int32_t token);
/* A one-line warning, to be freed by the caller; NULL: nothing to report. */
MUST_USE Status squad_counts_text(const SquadCounts *counts, char **ret_text);

/* Writes questions as JSON lines of token ids (the format `ids`), exactly as training would see them, one per
 * window: {"ids", "types", "start", "end"}. */
MUST_USE Status squad_prepare(const char *const *paths, int count, const Tokenizer *tokenizer,
                              const SquadSpec *spec, const char *out, SquadCounts *ret_counts,
                              int64_t *ret_tokens);

#endif
