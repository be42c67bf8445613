/* Fuzzes config.json: an accepted one describes a valid model and survives a round trip through a file. */
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "fuzz.h"

static Status parse(const char *text, size_t size, ModelConfig *ret_config) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_parse(text, size, "input", &json));
    return hf_config_parse(json, "input", ret_config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ModelConfig config, back;
    if (!fuzz_succeeded(parse((const char *)data, size, &config))) return 0;
    fuzz_require(fuzz_succeeded(config_check(&config)));
    CLEANUP(json_decrefp) json_t *json = NULL, *again = NULL;
    fuzz_require(fuzz_succeeded(hf_config_json(&config, &json)));
    CLEANUP(mem_freep) char *text = json_dumps(json, JSON_COMPACT);
    fuzz_require(text && fuzz_succeeded(parse(text, strlen(text), &back)));
    fuzz_require(fuzz_succeeded(hf_config_json(&back, &again)));
    fuzz_require(json_equal(json, again));
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2,\"n_embd\":8,"
        "\"n_head\":2,\"n_inner\":null,\"n_positions\":16,\"vocab_size\":9,\"activation_function\":\"gelu_"
        "new\","
        "\"attn_pdrop\":0.1,\"embd_pdrop\":0.2,\"resid_pdrop\":0,\"layer_norm_epsilon\":1e-5,"
        "\"initializer_range\":0.02,\"scale_attn_weights\":true,\"scale_attn_by_inverse_layer_idx\":false,"
        "\"bos_token_id\":1,\"eos_token_id\":[2,3],\"tie_word_embeddings\":false}",
        "{\"model_type\":\"bert\",\"architectures\":[\"BertForSequenceClassification\"],\"hidden_size\":8,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"intermediate_size\":12,\"hidden_act\":\"gelu\","
        "\"max_position_embeddings\":16,\"type_vocab_size\":2,\"vocab_size\":9,\"layer_norm_eps\":1e-12,"
        "\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"},\"classifier_dropout\":0.3,\"is_decoder\":false,"
        "\"hidden_dropout_prob\":0.1,\"attention_probs_dropout_prob\":0.1,\"pad_token_id\":0}",
        "{\"model_type\":\"bert\",\"architectures\":[\"BertForPreTraining\"],\"problem_type\":null,"
        "\"position_embedding_type\":\"absolute\",\"weft\":{\"heads\":[\"mlm\",\"span\"],\"pooler\":false,"
        "\"dropout_embed\":0.5}}",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
