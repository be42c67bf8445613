/* GPT-2's tokenizer. */
#include "tokenizer/internal.h"

Status tokenizer_load_bpe_json(Tokenizer **ret_tokenizer, const json_t *json, const char *from) {
    (void)ret_tokenizer, (void)json;
    return FAILED("%s: BPE tokenizers cannot be read yet", from);
}

Status tokenizer_load_bpe_files(Tokenizer **ret_tokenizer, const char *vocab_path, const char *merges_path) {
    (void)ret_tokenizer, (void)merges_path;
    return FAILED("%s: BPE tokenizers cannot be read yet", vocab_path);
}

Status tokenizer_new_bpe(Tokenizer **ret_tokenizer, Vocab *vocab, const BpeMerge *merges, size_t merge_count,
                         const int32_t *special, size_t special_count) {
    (void)ret_tokenizer, (void)merges, (void)merge_count, (void)special, (void)special_count;
    vocab_done(vocab);
    return FAILED("BPE tokenizers cannot be made yet");
}
