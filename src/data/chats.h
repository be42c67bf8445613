/* Conversations as examples of next-token prediction: their text by the chat template, with a loss on what
 * the assistant wrote, several to a sequence.
 *
 * A conversation of n tokens takes n - 1 positions, since its last token is only predicted. Conversations are
 * packed once, best-fit from the longest on, so a sequence has the same ones in every epoch. Attention stays
 * within a conversation, and positions restart, so they do not affect each other. */
#ifndef WEFT_DATA_CHATS_H
#define WEFT_DATA_CHATS_H

#include "chat/conversation.h"
#include "chat/template.h"
#include "data/data.h"

/* The default sequence length: contexts are often far longer than conversations, and take memory. */
enum { CHAT_SEQ = 2048 };

typedef struct ChatExample {
    size_t at;      /* offset in the pool of its tokens */
    int32_t length; /* at most one more than a sequence has positions */
} ChatExample;

typedef struct ChatSet {
    ChatFormat format;
    ChatExample *example;
    size_t count, capacity;
    int32_t *pool; /* tokens; those to predict are marked by being negative: -1 - token */
    size_t used, pool_capacity;
    size_t *order; /* examples in the order of the rows */
    size_t *row;   /* (rows + 1) offsets in `order` */
    size_t rows;
    int64_t truncated, dropped, untrained; /* examples cut, tokens cut off, and examples left out */
} ChatSet;

/* Reads the files of a spec. */
MUST_USE Status chat_set_read(ChatSet *set, const DataSpec *spec);
/* Forms the rows of examples begin .. begin + size - 1: one example to a row unless `packed`. */
MUST_USE Status chat_set_pack(ChatSet *set, int64_t begin, int64_t size, int64_t seq, bool packed);
void chat_set_done(ChatSet *set);
/* Fills a row of a batch. */
void chat_set_fill(const ChatSet *set, size_t row, int32_t pad, int64_t b, HostBatch *batch);
/* A line about what was cut, and one that describes the set; the caller frees them. NULL: nothing to report.
 */
MUST_USE Status chat_set_warning(const ChatSet *set, int64_t seq, char **ret_text);
MUST_USE Status chat_set_text(const ChatSet *set, char **ret_text);

/* One conversation as tokens and whether each is trained on; for describing data. */
typedef struct ChatTokens {
    char *text;
    TokenList tokens; /* with offsets in `text` */
    bool *trained;    /* (tokens.count) */
    size_t capacity;
} ChatTokens;

void chat_tokens_done(ChatTokens *tokens);
/* `encoder` gives offsets. Without a template, only prompts and completions that are texts can be tokenized;
 * `end` then ends them. */
MUST_USE Status chat_tokens_make(ChatTokens *tokens, const ChatTemplate *template, const Tokenizer *tokenizer,
                                 Encoder *encoder, const json_t *conversation, LossOn loss_on, int32_t end);

#endif
