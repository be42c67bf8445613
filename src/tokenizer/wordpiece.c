/* BERT's tokenizer. */
#include "tokenizer/internal.h"

Status tokenizer_load_wordpiece_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from) {
    (void)ret_tokenizer, (void)json;
    return FAILED("%s: WordPiece tokenizers cannot be read yet", from);
}

Status tokenizer_load_wordpiece_file(Tokenizer **ret_tokenizer, const char *vocab_path) {
    (void)ret_tokenizer;
    return FAILED("%s: WordPiece tokenizers cannot be read yet", vocab_path);
}

Status tokenizer_new_wordpiece(Tokenizer **ret_tokenizer, Vocab *vocab, bool cased, const int32_t *special,
                               size_t special_count) {
    (void)ret_tokenizer, (void)cased, (void)special, (void)special_count;
    vocab_done(vocab);
    return FAILED("WordPiece tokenizers cannot be made yet");
}
