/* Between the files that make up data sets: dataset.c, its checks and the tasks. */
#ifndef WEFT_DATA_DATASET_INTERNAL_H
#define WEFT_DATA_DATASET_INTERNAL_H

#include "data/chats.h"
#include "data/examples.h"
#include "data/ids.h"
#include "data/mask.h"
#include "data/pairs.h"
#include "data/squad_features.h"
#include "data/stream.h"

struct Dataset {
    DataSpec spec; /* paths cleared */
    DataFormat format;
    TokenStream stream;
    IdsSet ids;
    SquadFeatures squad;
    ExampleSet examples;
    PairSet pairs;
    ChatSet chats;
    bool from_pairs; /* mlm examples come from `pairs` (sentences are marked) */
    Masking masking;
    int64_t begin, size; /* the part of the stream (in tokens) or of the examples that is used */
    int64_t window;      /* distance in tokens between consecutive examples of a stream */
    int64_t tokens, count;
};

/* One example to produce: its source and its row in the batch. */
typedef struct Slot {
    int64_t index; /* example number */
    uint64_t epoch, position;
    int64_t b;     /* row in the batch */
    int64_t shift; /* lm: tokens by which this epoch's windows are shifted */
} Slot;

/* The formats of token streams, as bits. */
#define FORMAT_BIT(format) (1u << (format))
enum {
    FORMATS_STREAM = FORMAT_BIT(FORMAT_BYTES) | FORMAT_BIT(FORMAT_U16) | FORMAT_BIT(FORMAT_U32) |
                     FORMAT_BIT(FORMAT_TOKENS) | FORMAT_BIT(FORMAT_TEXT)
};
bool format_is_examples(DataFormat format);

/* dataset_check.c: fails if the files cannot be used as the spec says. */
MUST_USE Status dataset_check(const DataSpec *spec, DataFormat format);
MUST_USE Status too_little_data(const DataSpec *spec, const char *unit, int64_t have, int64_t all,
                                int64_t need);
MUST_USE Status too_few_tokens(const DataSpec *spec, int64_t have, int64_t all, int64_t need);

/* The token that fills a row after its example. */
static inline int32_t padding_of(const DataSpec *spec) {
    return spec->special.pad > 0 ? spec->special.pad : 0;
}

#endif
