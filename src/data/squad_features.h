/* SQuAD's questions as sequences for BERT, made as BERT's own code makes them:
 *
 *   [CLS] question [SEP] a window of the context [SEP]
 *
 * The question is cut to `max_query` tokens. A context that does not fit is covered by windows that start
 * `doc_stride` tokens after each other; each is an example of its own. Its labels are the first and the last
 * token of the first answer, or 0 and 0, the place of [CLS], when the window does not hold all of that answer
 * or there is none.
 *
 * Contexts and questions are encoded once and kept; a sequence is put together when it is asked for.
 */
#ifndef WEFT_DATA_SQUAD_FEATURES_H
#define WEFT_DATA_SQUAD_FEATURES_H

#include "data/squad.h"
#include "tokenizer/tokenizer.h"

enum { SQUAD_SEQ = 384, SQUAD_STRIDE = 128, SQUAD_QUERY = 64 }; /* as published */

typedef struct SquadSpec {
    int64_t seq;                   /* T */
    int64_t doc_stride, max_query; /* 0: as published. A small T makes max_query smaller */
    bool keep_lost;                /* questions whose answer is not in the context stay, without labels */
} SquadSpec;

/* Bytes of a context that a token came from. */
typedef struct SquadPlace {
    uint32_t start, end;
} SquadPlace;

/* Tokens in a row in the pool. */
typedef struct SquadTokens {
    size_t at;
    int32_t count;
} SquadTokens;

typedef struct SquadAsked {
    SquadTokens tokens;  /* of the question, cut */
    SquadTokens context; /* of its paragraph */
    size_t feature;      /* its first... */
    int32_t features;    /* ...and how many */
    size_t number;       /* in the SquadSet */
    int32_t first, last; /* context tokens of the answer; -1: none */
    bool lost;           /* there is an answer, but the context does not have it */
} SquadAsked;

typedef struct SquadFeature {
    size_t asked;
    int32_t first, count; /* context tokens in the window */
    int32_t start, end;   /* labels; T: not counted */
} SquadFeature;

/* What a person should know about the data. */
typedef struct SquadCounts {
    int64_t questions, features;
    int64_t moved; /* answers that were not where answer_start says, and were found elsewhere */
    int64_t lost;  /* ... and were not found: such a question is left out */
    int64_t cut;   /* questions that were cut */
    int64_t empty; /* contexts without a token */
} SquadCounts;

/* Start with zeroes. */
typedef struct SquadFeatures {
    SquadSpec spec; /* settled */
    SpecialTokens special;
    int32_t *pool;
    SquadPlace *place; /* beside the pool; only contexts have them */
    SquadAsked *asked;
    SquadFeature *feature;
    size_t used, askeds, features;
    size_t pool_capacity, place_capacity, asked_capacity, feature_capacity;
    SquadCounts counts;
} SquadFeatures;

/* Adds all of a set's questions. */
MUST_USE Status squad_features_make(SquadFeatures *features, const SquadSet *set, const Tokenizer *tokenizer,
                                    const SquadSpec *spec);
void squad_features_done(SquadFeatures *features);

/* The sequence, at most T long; returns its length. Neither array is padded. */
int32_t squad_feature_fill(const SquadFeatures *features, size_t index, int32_t *tokens, int32_t *types);
/* The position of the window's first context token. */
static inline int32_t squad_feature_offset(const SquadFeatures *features, const SquadFeature *feature) {
    return features->asked[feature->asked].tokens.count + 2;
}
/* Whether, of all windows that hold this context token, this one has the most context around it. */
bool squad_is_max_context(const SquadFeatures *features, const SquadFeature *feature, int32_t token);
/* What there is to warn of, in one line; NULL: nothing. */
MUST_USE Status squad_counts_text(const SquadCounts *counts, char **ret_text);

#endif
