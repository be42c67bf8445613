/* Fuzzes the small files of a model directory: an accepted config.json describes a valid model, also with
 * what generation_config.json adds; labels have names; special tokens have ids. The input is config.json,
 * generation_config.json, tokenizer.json and vocab.txt, separated by NULs. */
#include "checkpoint/checkpoint.h"
#include "dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "vocab.txt"};
    const char *dir = fuzz_dir_path();
    SpecialTokens tokens = {0};
    ModelConfig config;
    fuzz_dir_fill(names, sizeof names / sizeof *names, data, size);
    (void)fuzz_succeeded(special_tokens_read(dir, &tokens));
    if (!fuzz_succeeded(hf_config_read(dir, &config))) return 0;
    fuzz_require(fuzz_succeeded(config_check(&config)));
    if (fuzz_succeeded(hf_generation_read(dir, &config))) fuzz_require(fuzz_succeeded(config_check(&config)));
    CLEANUP(label_set_done) LabelSet labels = {0};
    if (config.labels < 1 || config.labels > 1000) return 0;
    if (!fuzz_succeeded(hf_labels_read(dir, config.labels, &labels))) return 0;
    fuzz_require((int64_t)labels.count == config.labels);
    for (size_t i = 0; i < labels.count; i++) fuzz_require(labels.name[i]);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[][4] = {
        {"{\"model_type\":\"bert\",\"architectures\":[\"BertForSequenceClassification\"],\"hidden_size\":8,"
         "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"intermediate_size\":12,\"vocab_size\":9,"
         "\"max_position_embeddings\":16,\"type_vocab_size\":2,\"id2label\":{\"0\":\"a\",\"1\":\"b\"}}",
         "", "", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##b\n"},
        {"{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":8,\"n_head\":2,\"n_positions\":16,\"vocab_size\":"
         "9}",
         "{\"bos_token_id\":1,\"eos_token_id\":[2,3],\"pad_token_id\":0,\"temperature\":0.7}",
         "{\"added_tokens\":[{\"id\":0,\"content\":\"[PAD]\",\"special\":true}],\"model\":{\"vocab\":{\"[CLS]"
         "\":1,"
         "\"[SEP]\":2,\"[MASK]\":3}}}",
         ""},
    };
    size_t size = 0;
    if (index >= sizeof seeds / sizeof *seeds) return 0;
    for (int i = 0; i < 4; i++) {
        size += fuzz_seed_text(seeds[index][i], out + size);
        if (i < 3) out[size++] = 0;
    }
    return size;
}
