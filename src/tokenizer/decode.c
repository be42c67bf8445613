/* Decoding of token ids to text, all at once or token by token. */
#include "tokenizer/internal.h"

static Status decode_one(const Tokenizer *tokenizer, DecodeState *state, int32_t id, bool skip_special,
                         Bytes *out) {
    if (id < 0 || id >= tokenizer->vocab.count)
        return FAILED("token %d is not in the vocabulary, which has ids 0 to %d", id,
                      tokenizer->vocab.count - 1);
    if (skip_special && tokenizer->omitted[id]) return OK;
    TRY(tokenizer->ops->decode(tokenizer, state, id, out));
    state->count++;
    return OK;
}

static Status decode_rest(const Tokenizer *tokenizer, DecodeState *state, Bytes *out) {
    return tokenizer->ops->decode_end ? tokenizer->ops->decode_end(tokenizer, state, out) : OK;
}

static void decode_state_done(DecodeState *state) {
    bytes_done(&state->run);
    *state = (DecodeState){0};
}

Status tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t count, bool skip_special,
                        char **ret_text, size_t *ret_size) {
    CLEANUP(bytes_done) Bytes out = {0};
    CLEANUP(decode_state_done) DecodeState state = {0};
    for (size_t i = 0; i < count; i++) TRY(decode_one(tokenizer, &state, ids[i], skip_special, &out));
    TRY(decode_rest(tokenizer, &state, &out));
    TRY(bytes_add(&out, "", 1));
    *ret_text = out.data;
    *ret_size = out.size - 1;
    out = (Bytes){0};
    return OK;
}

struct Decoder {
    const Tokenizer *tokenizer;
    bool skip_special;
    DecodeState state;
    Utf8Repair repair;
    Bytes raw, valid;
};

Status decoder_new(Decoder **ret_decoder, const Tokenizer *tokenizer, bool skip_special) {
    Decoder *decoder = NULL;
    TRY(mem_new(1, sizeof *decoder, &decoder));
    decoder->tokenizer = tokenizer;
    decoder->skip_special = skip_special;
    *ret_decoder = decoder;
    return OK;
}

void decoder_free(Decoder *decoder) {
    if (!decoder) return;
    decode_state_done(&decoder->state);
    bytes_done(&decoder->raw);
    bytes_done(&decoder->valid);
    free(decoder);
}

Status decoder_push(Decoder *decoder, int32_t id, const char **ret_piece, size_t *ret_size) {
    decoder->raw.size = decoder->valid.size = 0;
    TRY(decode_one(decoder->tokenizer, &decoder->state, id, decoder->skip_special, &decoder->raw));
    TRY(utf8_repair(&decoder->repair, decoder->raw.data, decoder->raw.size, &decoder->valid));
    *ret_piece = decoder->valid.size ? decoder->valid.data : "";
    *ret_size = decoder->valid.size;
    return OK;
}

Status decoder_end(Decoder *decoder, const char **ret_piece, size_t *ret_size) {
    decoder->raw.size = decoder->valid.size = 0;
    TRY(decode_rest(decoder->tokenizer, &decoder->state, &decoder->raw));
    decode_state_done(&decoder->state);
    TRY(utf8_repair(&decoder->repair, decoder->raw.data, decoder->raw.size, &decoder->valid));
    TRY(utf8_repair_end(&decoder->repair, &decoder->valid));
    *ret_piece = decoder->valid.size ? decoder->valid.data : "";
    *ret_size = decoder->valid.size;
    return OK;
}
