/* Parsing logit biases. */
#include "infer/logits.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/memory.h"

static Status parse_value(const char *text, const char *value, float *ret_bias) {
    char *end = NULL;
    double bias = strtod(value, &end);
    if (end == value || *end || !(fabs(bias) <= 1e6 || bias == -INFINITY))
        return USAGE("{logit-bias} %s: '%s' is not a number from -1e6 to 1e6 or -inf", text, value);
    *ret_bias = (float)bias;
    return OK;
}

static Status parse_id(const char *text, const char *digits, int64_t vocab, int32_t *ret_token) {
    errno = 0;
    long long id = strtoll(digits, NULL, 10);
    if (errno || id >= vocab)
        return USAGE("{logit-bias} %s: the token is outside the vocabulary of %lld tokens", text,
                     (long long)vocab);
    *ret_token = (int32_t)id;
    return OK;
}

static Status find_token(const char *text, const char *token, size_t size, const Tokenizer *tokenizer,
                         int32_t *ret_token) {
    if (!tokenizer)
        return USAGE("{logit-bias} %s: the model has no tokenizer; give a token id, or a tokenizer with "
                     "{tokenizer}",
                     text);
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    CLEANUP(token_list_done) TokenList list = {0};
    TRY(encoder_new(&encoder, tokenizer, NULL));
    TRY(encoder_add(encoder, token, size, &list));
    int32_t spelled = tokenizer_find(tokenizer, token, size);
    if (list.count != 1 && spelled < 0)
        return USAGE("{logit-bias} %s: '%.*s' is %zu tokens; expected one", text, (int)size, token,
                     list.count);
    *ret_token = list.count == 1 ? list.ids[0] : spelled;
    return OK;
}

/* The last colon separates the value, so that a token may contain colons. */
static Status parse_entry(const char *text, const Tokenizer *tokenizer, int64_t vocab, TokenBias *ret_bias) {
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        return USAGE("{logit-bias} %s: expected TOKEN:VALUE, such as 464:-5 or the:2", text);
    size_t size = (size_t)(colon - text);
    TRY(parse_value(text, colon + 1, &ret_bias->bias));
    if (strspn(text, "0123456789") == size) return parse_id(text, text, vocab, &ret_bias->token);
    return find_token(text, text, size, tokenizer, &ret_bias->token);
}

Status token_biases_parse(const char *const *texts, int count, const Tokenizer *tokenizer, int64_t vocab,
                          TokenBias **ret_biases) {
    CLEANUP(mem_freep) TokenBias *biases = NULL;
    TRY(mem_new((size_t)count, sizeof *biases, &biases));
    for (int i = 0; i < count; i++) {
        TRY(parse_entry(texts[i], tokenizer, vocab, &biases[i]));
        for (int j = 0; j < i; j++)
            if (biases[j].token == biases[i].token)
                return USAGE("{logit-bias} %s: token %d already has a bias", texts[i], (int)biases[i].token);
    }
    return MOVE(ret_biases, biases);
}
