/* config.json, both ways: files written by transformers 4 and 5, every set of output heads, and what is
 * refused. */
#include <math.h>

#include "fixture.h"

#include "model/rope.h"

static Status parse(const char *text, ModelConfig *ret_config) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    TRY(json_parse(text, strlen(text), "config.json", &json));
    return hf_config_parse(json, "config.json", ret_config);
}

static void assert_same_rope(const Rope *a, const Rope *b) {
    assert_int_equal(a->scaling, b->scaling);
    assert_int_equal(a->original, b->original);
    assert_int_equal(a->no_truncate, b->no_truncate);
    assert_true(a->theta == b->theta);
    assert_true(a->factor == b->factor);
    assert_true(a->attention_factor == b->attention_factor);
    assert_true(a->low_freq_factor == b->low_freq_factor);
    assert_true(a->high_freq_factor == b->high_freq_factor);
    assert_true(a->beta_fast == b->beta_fast);
    assert_true(a->beta_slow == b->beta_slow);
    assert_true(a->mscale == b->mscale);
    assert_true(a->mscale_all_dim == b->mscale_all_dim);
    assert_memory_equal(a->short_factor, b->short_factor, sizeof a->short_factor);
    assert_memory_equal(a->long_factor, b->long_factor, sizeof a->long_factor);
}

static void assert_same(const ModelConfig *a, const ModelConfig *b) {
    assert_ptr_equal(a->family, b->family);
    assert_int_equal(a->outputs_mask, b->outputs_mask);
    assert_int_equal(a->pooler, b->pooler);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->hidden, b->hidden);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(a->inner, b->inner);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->positions, b->positions);
    assert_int_equal(a->types, b->types);
    assert_int_equal(a->labels, b->labels);
    assert_int_equal(a->problem, b->problem);
    assert_int_equal(a->act, b->act);
    assert_true(a->norm_eps == b->norm_eps);
    assert_true(a->init_std == b->init_std);
    assert_true(a->dropout_embed == b->dropout_embed);
    assert_true(a->dropout_attn == b->dropout_attn);
    assert_true(a->dropout_hidden == b->dropout_hidden);
    if (config_has(a, OUTPUT_CLASSIFY)) assert_true(a->dropout_classify == b->dropout_classify);
    assert_int_equal(a->tied, b->tied);
    assert_int_equal(a->biases, b->biases);
    assert_int_equal(config_kv_heads(a), config_kv_heads(b));
    assert_int_equal(config_head_width(a), config_head_width(b));
    assert_int_equal(a->attention, b->attention);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->window_from, b->window_from);
    assert_same_rope(&a->rope, &b->rope);
    assert_int_equal(a->qk_norm, b->qk_norm);
    assert_int_equal(a->qk_norm_whole, b->qk_norm_whole);
    assert_int_equal(a->experts, b->experts);
    assert_int_equal(a->top_k, b->top_k);
    assert_int_equal(a->expert_inner, b->expert_inner);
    assert_int_equal(a->shared_inner, b->shared_inner);
    assert_int_equal(a->norm_top_k, b->norm_top_k);
    assert_true(a->balance_coef == b->balance_coef);
    for (int i = 0; i < a->layers; i++) assert_int_equal(config_sparse(a, i), config_sparse(b, i));
    assert_int_equal(a->scale_attn, b->scale_attn);
    assert_int_equal(a->scale_attn_by_layer, b->scale_attn_by_layer);
    assert_int_equal(a->pad_token, b->pad_token);
    assert_int_equal(a->bos_token, b->bos_token);
    assert_int_equal(a->eos_token, b->eos_token);
    assert_int_equal(a->eos_more_count, b->eos_more_count);
    for (int i = 0; i < a->eos_more_count; i++) assert_int_equal(a->eos_more[i], b->eos_more[i]);
}

static void absent_fields_are_transformers_defaults(void **state) {
    ModelConfig config, preset;
    assert_ok(parse("{\"model_type\": \"gpt2\"}", &config));
    assert_ok(config_preset("gpt2", &preset));
    assert_same(&config, &preset);
    assert_ok(parse("{\"model_type\": \"bert\", \"architectures\": [\"BertForPreTraining\"]}", &config));
    assert_ok(config_preset("bert-base", &preset));
    assert_same(&config, &preset);
}

static void reads_files_of_version_4(void **state) {
    ModelConfig config;
    assert_ok(
        parse("{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_ctx\":32,"
              "\"n_positions\":48,\"n_embd\":24,\"n_head\":3,\"n_layer\":5,\"vocab_size\":100,"
              "\"n_inner\":null,\"activation_function\":\"gelu_pytorch_tanh\",\"resid_pdrop\":0.3,"
              "\"embd_pdrop\":0,\"attn_pdrop\":0.2,\"layer_norm_epsilon\":1e-6,\"torch_dtype\":\"float16\","
              "\"task_specific_params\":{\"text-generation\":{\"do_sample\":true}},"
              "\"bos_token_id\":50256,\"eos_token_id\":[7,8],\"scale_attn_weights\":false,"
              "\"scale_attn_by_inverse_layer_idx\":true,\"tie_word_embeddings\":false}",
              &config));
    assert_int_equal(config.positions, 48);
    assert_int_equal(config.inner, 96);
    assert_int_equal(config.eos_token, 7);
    assert_float_equal(config.dropout_hidden, 0.3, 1e-7);
    assert_float_equal(config.dropout_embed, 0, 0);
    assert_false(config.scale_attn);
    assert_true(config.scale_attn_by_layer);
    assert_false(config.tied);
    assert_int_equal(config.act, ACT_GELU_TANH);
    assert_ok(parse("{\"model_type\":\"bert\",\"architectures\":[\"BertForSequenceClassification\"],"
                    "\"position_embedding_type\":\"absolute\",\"gradient_checkpointing\":false,"
                    "\"id2label\":{\"0\":\"a\",\"1\":\"b\",\"2\":\"c\"},\"hidden_act\":\"relu\","
                    "\"classifier_dropout\":0.5,\"hidden_dropout_prob\":0.25}",
                    &config));
    assert_int_equal(config.labels, 3);
    assert_int_equal(config.outputs_mask, OUTPUT_CLASSIFY);
    assert_int_equal(config.act, ACT_RELU);
    assert_float_equal(config.dropout_classify, 0.5, 0);
    assert_float_equal(config.dropout_embed, 0.25, 0);
}

/* Without problem_type, a single label means regression, as in transformers. */
static void problem_types(void **state) {
    static const struct {
        const char *field;
        ProblemType set, problem;
        int64_t targets;
    } types[] = {
        {"\"num_labels\":1", PROBLEM_AUTO, PROBLEM_REGRESSION, 1},
        {"\"num_labels\":4", PROBLEM_AUTO, PROBLEM_SINGLE_LABEL, 0},
        {"\"num_labels\":4,\"problem_type\":null", PROBLEM_AUTO, PROBLEM_SINGLE_LABEL, 0},
        {"\"num_labels\":4,\"problem_type\":\"regression\"", PROBLEM_REGRESSION, PROBLEM_REGRESSION, 4},
        {"\"num_labels\":1,\"problem_type\":\"single_label_classification\"", PROBLEM_SINGLE_LABEL,
         PROBLEM_SINGLE_LABEL, 0},
        {"\"num_labels\":1,\"problem_type\":\"multi_label_classification\"", PROBLEM_MULTI_LABEL,
         PROBLEM_MULTI_LABEL, 1},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"architectures\":[\"BertForSequenceClassification\"],%s}",
                 types[i].field);
        ModelConfig config;
        assert_ok(parse(text, &config));
        assert_int_equal(config.problem, types[i].set);
        assert_int_equal(config_problem(&config), types[i].problem);
        assert_int_equal(config_targets(&config), types[i].targets);
        CLEANUP(json_decrefp) json_t *json = NULL;
        assert_ok(hf_config_json(&config, &json));
        const char *written = json_string_value(json_object_get(json, "problem_type"));
        if (types[i].set == PROBLEM_AUTO)
            assert_null(written);
        else
            assert_string_equal(written, problem_name(types[i].set));
    }
    ModelConfig other;
    assert_ok(parse("{\"architectures\":[\"BertForMaskedLM\"],\"num_labels\":1}", &other));
    assert_int_equal(config_targets(&other), 0);
}

static const struct {
    const char *name;
    unsigned heads;
    bool pooler;
} classes[] = {
    {"BertForPreTraining", OUTPUT_MLM | OUTPUT_NSP, true},
    {"BertForMaskedLM", OUTPUT_MLM, false},
    {"BertForNextSentencePrediction", OUTPUT_NSP, true},
    {"BertForQuestionAnswering", OUTPUT_SPAN, false},
    {"BertForSequenceClassification", OUTPUT_CLASSIFY, true},
    {"BertModel", 0, true},
};

static void classes_are_heads(void **state) {
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"architectures\": [\"%s\"]}", classes[i].name);
        ModelConfig config;
        assert_ok(parse(text, &config));
        assert_int_equal(config.outputs_mask, classes[i].heads);
        assert_int_equal(config.pooler, classes[i].pooler);
        CLEANUP(json_decrefp) json_t *json = NULL;
        assert_ok(hf_config_json(&config, &json));
        assert_string_equal(json_string_value(json_array_get(json_object_get(json, "architectures"), 0)),
                            classes[i].name);
        assert_null(json_object_get(json, "weft"));
    }
}

/* A decoder without its output matrix: tied, or with a new one. It is saved as the complete class. */
static void base_models(void **state) {
    static const char *const names[] = {"Llama",   "Mistral",  "Qwen2",    "Qwen3",
                                        "Mixtral", "Qwen2Moe", "Qwen3Moe", "Olmoe"};
    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        char text[128], full[64];
        const char *name = names[i / 2];
        bool tied = i % 2;
        snprintf(text, sizeof text, "{\"architectures\": [\"%sModel\"], \"tie_word_embeddings\": %s}", name,
                 tied ? "true" : "false");
        snprintf(full, sizeof full, "%sForCausalLM", name);
        ModelConfig config;
        assert_ok(parse(text, &config));
        assert_int_equal(config.outputs_mask, OUTPUT_LM);
        assert_int_equal(config.tied, tied);
        assert_int_equal(config.bare, !tied);
        CLEANUP(json_decrefp) json_t *json = NULL;
        assert_ok(hf_config_json(&config, &json));
        assert_string_equal(json_string_value(json_array_get(json_object_get(json, "architectures"), 0)),
                            full);
    }
}

static void same_after_writing(const ModelConfig *config) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(hf_config_json(config, &json));
    CLEANUP(mem_freep) char *text = json_dumps(json, 0);
    ModelConfig back;
    assert_ok(parse(text, &back));
    if (!config_has(config, OUTPUT_CLASSIFY)) back.labels = config->labels;
    assert_same(&back, config);
}

static void every_set_of_heads_round_trips(void **state) {
    for (unsigned heads = 0; heads < 32; heads += 2)
        for (int pooler = 0; pooler < 2; pooler++) {
            if ((heads & (OUTPUT_NSP | OUTPUT_CLASSIFY)) && !pooler) continue;
            ModelConfig config = small_config(&family_bert, heads, pooler, heads & 4);
            config.dropout_classify = 0.3f;
            config.dropout_embed = heads & 8 ? 0.7f : config.dropout_hidden;
            config.norm_eps = 1e-7f;
            config.pad_token = 3;
            if (heads & OUTPUT_CLASSIFY) config.problem = (ProblemType)(heads / 2 % 4);
            same_after_writing(&config);
        }
    for (int act = ACT_GELU_TANH; act <= ACT_TANH; act++) {
        ModelConfig config = small_config(&family_gpt2, OUTPUT_LM, false, act & 1);
        config.act = (Act)act;
        config.scale_attn = act & 2;
        config.scale_attn_by_layer = !config.scale_attn;
        config.dropout_attn = 1.0f / 3;
        config.init_std = 0.013f;
        same_after_writing(&config);
    }
}

/* The length before scaling may be outside the rotary settings, where it wins. */
static void original_length(void **state) {
    static const struct {
        const char *inside, *outside;
        int64_t original;
    } cases[] = {
        {"", "", 2048},
        {",\"original_max_position_embeddings\":64", "", 64},
        {"", ",\"original_max_position_embeddings\":32", 32},
        {",\"original_max_position_embeddings\":64", ",\"original_max_position_embeddings\":32", 32}};
    static const char *const settings[] = {"rope_scaling", "rope_parameters"};
    for (const Family *const *family = families(); *family; family++) {
        ModelConfig config;
        (*family)->defaults(&config);
        if (config.position != POSITION_ROPE) continue;
        for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
            char text[512];
            snprintf(text, sizeof text,
                     "{\"model_type\":\"%s\",\"max_position_embeddings\":2048,\"%s\":{\"rope_type\":"
                     "\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4%s}%s}",
                     (*family)->type, settings[i % 2], cases[i / 2].inside, cases[i / 2].outside);
            assert_ok(parse(text, &config));
            assert_int_equal(config.rope.scaling, ROPE_LLAMA3);
            assert_int_equal(config.rope.original, cases[i / 2].original);
            same_after_writing(&config);
        }
    }
}

/* "is_causal": false, as in embedding models made from decoders. */
static void both_directions(void **state) {
    for (const Family *const *family = families(); *family; family++) {
        char text[160];
        ModelConfig config;
        bool decoder = !!((*family)->outputs & OUTPUT_LM);
        (*family)->defaults(&config);
        int width = config.qk_norm_whole ? (int)config_head_width(&config) : 64;
        snprintf(text, sizeof text,
                 "{\"model_type\":\"%s\",\"is_causal\":false,\"sliding_window\":null,\"head_dim\":%d}",
                 (*family)->type, width);
        assert_ok(parse(text, &config));
        assert_int_equal(config_is_decoder(&config), decoder);
        assert_false(config_causal(&config));
        assert_false(config_generates(&config));
        same_after_writing(&config);
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"is_causal\":true,\"head_dim\":%d}",
                 (*family)->type, width);
        if (!decoder) {
            assert_fails(parse(text, &config), 1, "'is_causal' is true");
            continue;
        }
        assert_ok(parse(text, &config));
        assert_true(config_causal(&config) && config_generates(&config));
    }
    /* A window that covers all positions is none. */
    ModelConfig config;
    assert_ok(parse("{\"model_type\":\"mistral\",\"is_causal\":false,\"sliding_window\":31,"
                    "\"max_position_embeddings\":32}",
                    &config));
    assert_int_equal(config_window(&config, 0), 0);
}

/* Every kind of scaling, for heads of width 6. */
static const Rope scaled[] = {
    {.theta = 500},
    {.theta = 500, .scaling = ROPE_LINEAR, .factor = 4},
    {.theta = 500,
     .scaling = ROPE_LLAMA3,
     .factor = 4,
     .low_freq_factor = 1,
     .high_freq_factor = 4,
     .original = 64},
    {.theta = 500, .scaling = ROPE_DYNAMIC, .factor = 2.5f},
    {.theta = 500, .scaling = ROPE_YARN, .factor = 4, .original = 64, .beta_fast = 32, .beta_slow = 1},
    {.theta = 500,
     .scaling = ROPE_YARN,
     .factor = 1.3f,
     .original = 64,
     .attention_factor = 0.9f,
     .beta_fast = 8,
     .beta_slow = 0.5f,
     .mscale = 0.707f,
     .mscale_all_dim = 1,
     .no_truncate = true},
    {.theta = 500,
     .scaling = ROPE_LONGROPE,
     .factor = 4,
     .original = 64,
     .short_factor = {1, 1.1f, 1.2f},
     .long_factor = {1, 2, 3.3f}},
    {.theta = 500,
     .scaling = ROPE_LONGROPE,
     .factor = 4,
     .attention_factor = 1.19f,
     .original = 64,
     .short_factor = {1, 1, 1},
     .long_factor = {1, 2, 4}},
};

static void decoders_round_trip(void **state) {
    for (const Family *const *family = families(); *family; family++) {
        ModelConfig config;
        (*family)->defaults(&config);
        if (config.position != POSITION_ROPE) continue;
        for (int i = 0; i < (int)(sizeof scaled / sizeof *scaled); i++) {
            config.kv_heads = config.heads / (i + 1) * (i + 1) == config.heads ? config.heads / (i + 1) : 1;
            config.head_width = i ? 6 : config_head_width(&config);
            if (config.qk_norm_whole) config.kv_heads = 0, config.hidden = config_attention(&config);
            config.rope = scaled[i];
            config.dropout_hidden = i ? 0.25f : 0;
            config.tied = i;
            same_after_writing(&config);
        }
    }
    ModelConfig old, new;
    assert_ok(parse("{\"model_type\":\"llama\",\"rope_theta\":500,\"rope_scaling\":{\"type\":\"linear\","
                    "\"factor\":2}}",
                    &old));
    assert_ok(parse("{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.0,"
                    "\"rope_theta\":500.0}}",
                    &new));
    assert_same(&old, &new);
    assert_true(old.rope.theta == 500 && old.rope.factor == 2);
}

/* Fields of published files and what they mean; the attention factors are transformers'. */
static void scaled_positions(void **state) {
    static const struct {
        const char *text;
        int64_t original, context;
        float factor, attention;
    } cases[] = {
        /* Qwen2.5 as its documentation extends it */
        {"{\"model_type\":\"qwen2\",\"max_position_embeddings\":32768,\"rope_theta\":1000000.0,\"rope_"
         "scaling\":{"
         "\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":32768}}",
         32768, 131072, 4, 1.1386294f},
        /* null is what the lengths say */
        {"{\"model_type\":\"llama\",\"max_position_embeddings\":16384,\"rope_parameters\":{\"rope_type\":"
         "\"yarn\","
         "\"factor\":null,\"attention_factor\":null,\"original_max_position_embeddings\":2048}}",
         2048, 16384, 8, 1.2079442f},
        /* DeepSeek's mscale */
        {"{\"model_type\":\"llama\",\"max_position_embeddings\":163840,\"rope_parameters\":{\"rope_type\":"
         "\"yarn\","
         "\"factor\":40,\"mscale\":1.0,\"mscale_all_dim\":0.5,\"original_max_position_embeddings\":4096}}",
         4096, 163840, 40, 1.1557220f},
        {"{\"model_type\":\"llama\",\"max_position_embeddings\":1024,\"rope_scaling\":{\"type\":\"dynamic\","
         "\"factor\":4}}",
         1024, 4096, 4, 1},
        {"{\"model_type\":\"llama\",\"max_position_embeddings\":16384,\"rope_scaling\":{\"type\":\"linear\","
         "\"factor\":4}}",
         4096, 16384, 4, 1},
        /* as Phi-3 writes it */
        {"{\"model_type\":\"llama\",\"hidden_size\":16,\"num_attention_heads\":4,\"max_position_embeddings\":"
         "131072,"
         "\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":"
         "[1,1.5],"
         "\"long_factor\":[2,30.5]}}",
         4096, 131072, 32, 1.1902380f}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ModelConfig config;
        assert_ok(parse(cases[i].text, &config));
        assert_int_equal(rope_original(&config), cases[i].original);
        assert_int_equal(config_context(&config), cases[i].context);
        assert_true(config.rope.factor == cases[i].factor);
        float found = rope_attention_factor(&config.rope);
        if (fabsf(found - cases[i].attention) > 2e-7f) fail_msg("case %zu: factor %.8g", i, (double)found);
        same_after_writing(&config);
    }
}

/* Fields of published files, with the published numbers of parameters. */
static const struct {
    const char *name, *text;
    int64_t params, head_width, kv_heads;
    RopeScaling scaling;
    float factor, theta;
    int64_t window;
    const char *preset; /* the same model; NULL: none */
} published[] = {
    {"Llama-3.1-8B",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
     "\"attention_dropout\":0.0,\"bos_token_id\":128000,\"eos_token_id\":128001,"
     "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"initializer_range\":0.02,"
     "\"intermediate_size\":14336,\"max_position_embeddings\":131072,\"mlp_bias\":false,"
     "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":32,"
     "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":8.0,"
     "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
     "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
     "\"rope_theta\":500000.0,\"tie_word_embeddings\":false,\"vocab_size\":128256}",
     8030261248, 128, 8, ROPE_LLAMA3, 8, 500000, 0, NULL},
    {"Llama-3.2-1B",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
     "\"attention_dropout\":0.0,\"bos_token_id\":128000,\"eos_token_id\":128001,"
     "\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":2048,\"initializer_range\":0.02,"
     "\"intermediate_size\":8192,\"max_position_embeddings\":131072,\"mlp_bias\":false,"
     "\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_layers\":16,"
     "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":32.0,"
     "\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
     "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
     "\"rope_theta\":500000.0,\"tie_word_embeddings\":true,\"vocab_size\":128256}",
     1235814400, 64, 8, ROPE_LLAMA3, 32, 500000, 0, "llama-3.2-1b"},
    {"Mistral-7B-v0.1",
     "{\"architectures\":[\"MistralForCausalLM\"],\"bos_token_id\":1,\"eos_token_id\":2,"
     "\"hidden_act\":\"silu\",\"hidden_size\":4096,\"initializer_range\":0.02,"
     "\"intermediate_size\":14336,\"max_position_embeddings\":32768,"
     "\"model_type\":\"mistral\",\"num_attention_heads\":32,\"num_hidden_layers\":32,"
     "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0,"
     "\"sliding_window\":4096,\"tie_word_embeddings\":false,\"vocab_size\":32000}",
     7241732096, 128, 8, ROPE_PLAIN, 0, 10000, 4096, "mistral-7b"},
    {"Mistral-7B-v0.3",
     "{\"architectures\":[\"MistralForCausalLM\"],\"attention_dropout\":0.0,"
     "\"bos_token_id\":1,\"eos_token_id\":2,\"hidden_act\":\"silu\",\"hidden_size\":4096,"
     "\"initializer_range\":0.02,\"intermediate_size\":14336,"
     "\"max_position_embeddings\":32768,\"model_type\":\"mistral\",\"num_attention_heads\":32,"
     "\"num_hidden_layers\":32,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,"
     "\"rope_theta\":1000000.0,\"sliding_window\":null,\"tie_word_embeddings\":false,"
     "\"vocab_size\":32768}",
     7248023552, 128, 8, ROPE_PLAIN, 0, 1000000, 0, NULL},
    {"Qwen2.5-0.5B",
     "{\"architectures\":[\"Qwen2ForCausalLM\"],\"attention_dropout\":0.0,"
     "\"bos_token_id\":151643,\"eos_token_id\":151643,\"hidden_act\":\"silu\","
     "\"hidden_size\":896,\"initializer_range\":0.02,\"intermediate_size\":4864,"
     "\"max_position_embeddings\":32768,\"max_window_layers\":24,\"model_type\":\"qwen2\","
     "\"num_attention_heads\":14,\"num_hidden_layers\":24,\"num_key_value_heads\":2,"
     "\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"sliding_window\":32768,"
     "\"tie_word_embeddings\":true,\"use_mrope\":false,\"use_sliding_window\":false,"
     "\"vocab_size\":151936}",
     494032768, 64, 2, ROPE_PLAIN, 0, 1000000, 0, "qwen2.5-0.5b"},
    {"Qwen3-0.6B",
     "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,"
     "\"attention_dropout\":0.0,\"bos_token_id\":151643,\"eos_token_id\":151645,"
     "\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":1024,"
     "\"initializer_range\":0.02,\"intermediate_size\":3072,\"max_position_embeddings\":40960,"
     "\"max_window_layers\":28,\"model_type\":\"qwen3\",\"num_attention_heads\":16,"
     "\"num_hidden_layers\":28,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-06,"
     "\"rope_scaling\":null,\"rope_theta\":1000000,\"sliding_window\":null,"
     "\"tie_word_embeddings\":true,\"use_sliding_window\":false,\"vocab_size\":151936}",
     596049920, 128, 8, ROPE_PLAIN, 0, 1000000, 0, "qwen3-0.6b"},
    {"SmolLM2-135M",
     "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
     "\"attention_dropout\":0.0,\"bos_token_id\":0,\"eos_token_id\":0,\"hidden_act\":\"silu\","
     "\"hidden_size\":576,\"initializer_range\":0.041666666666666664,"
     "\"intermediate_size\":1536,\"is_llama_config\":true,\"max_position_embeddings\":8192,"
     "\"model_type\":\"llama\",\"num_attention_heads\":9,\"num_hidden_layers\":30,"
     "\"num_key_value_heads\":3,\"rms_norm_eps\":1e-05,\"rope_interleaved\":false,"
     "\"rope_scaling\":null,\"rope_theta\":100000,\"tie_word_embeddings\":true,"
     "\"vocab_size\":49152}",
     134515008, 64, 3, ROPE_PLAIN, 0, 100000, 0, NULL},
    {"Mixtral-8x7B-v0.1",
     "{\"architectures\":[\"MixtralForCausalLM\"],\"attention_dropout\":0.0,\"bos_token_id\":1,"
     "\"eos_token_id\":2,\"hidden_act\":\"silu\",\"hidden_size\":4096,\"initializer_range\":0.02,"
     "\"intermediate_size\":14336,\"max_position_embeddings\":32768,\"model_type\":\"mixtral\","
     "\"num_attention_heads\":32,\"num_experts_per_tok\":2,\"num_hidden_layers\":32,"
     "\"num_key_value_heads\":8,\"num_local_experts\":8,\"output_router_logits\":false,"
     "\"rms_norm_eps\":1e-05,\"rope_theta\":1000000.0,\"router_aux_loss_coef\":0.02,"
     "\"sliding_window\":null,\"tie_word_embeddings\":false,\"vocab_size\":32000}",
     46702792704, 128, 8, ROPE_PLAIN, 0, 1000000, 0, "mixtral-8x7b"},
    {"Qwen1.5-MoE-A2.7B",
     "{\"architectures\":[\"Qwen2MoeForCausalLM\"],\"attention_dropout\":0.0,\"bos_token_id\":151643,"
     "\"eos_token_id\":151643,\"hidden_act\":\"silu\",\"hidden_size\":2048,\"initializer_range\":0.02,"
     "\"intermediate_size\":5632,\"max_position_embeddings\":8192,\"max_window_layers\":21,"
     "\"model_type\":\"qwen2_moe\",\"num_attention_heads\":16,\"num_hidden_layers\":24,"
     "\"num_key_value_heads\":16,\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,"
     "\"sliding_window\":32768,\"tie_word_embeddings\":false,\"use_sliding_window\":false,"
     "\"vocab_size\":151936,\"decoder_sparse_step\":1,\"moe_intermediate_size\":1408,"
     "\"shared_expert_intermediate_size\":5632,\"num_experts_per_tok\":4,\"num_experts\":60,"
     "\"norm_topk_prob\":false,\"output_router_logits\":false,\"router_aux_loss_coef\":0.001}",
     14315784192, 128, 16, ROPE_PLAIN, 0, 1000000, 0, "qwen1.5-moe-a2.7b"},
    {"Qwen3-30B-A3B",
     "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,"
     "\"bos_token_id\":151643,\"decoder_sparse_step\":1,\"eos_token_id\":151645,\"head_dim\":128,"
     "\"hidden_act\":\"silu\",\"hidden_size\":2048,\"initializer_range\":0.02,"
     "\"intermediate_size\":6144,\"max_position_embeddings\":40960,\"max_window_layers\":48,"
     "\"mlp_only_layers\":[],\"model_type\":\"qwen3_moe\",\"moe_intermediate_size\":768,"
     "\"norm_topk_prob\":true,\"num_attention_heads\":32,\"num_experts\":128,"
     "\"num_experts_per_tok\":8,\"num_hidden_layers\":48,\"num_key_value_heads\":4,"
     "\"output_router_logits\":false,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,"
     "\"rope_theta\":1000000.0,\"router_aux_loss_coef\":0.001,\"sliding_window\":null,"
     "\"tie_word_embeddings\":false,\"use_sliding_window\":false,\"vocab_size\":151936}",
     30532122624, 128, 4, ROPE_PLAIN, 0, 1000000, 0, "qwen3-30b-a3b"},
    {"OLMoE-1B-7B-0924",
     "{\"architectures\":[\"OlmoeForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,"
     "\"clip_qkv\":null,\"eos_token_id\":50279,\"hidden_act\":\"silu\",\"hidden_size\":2048,"
     "\"initializer_range\":0.02,\"intermediate_size\":1024,\"max_position_embeddings\":4096,"
     "\"model_type\":\"olmoe\",\"norm_topk_prob\":false,\"num_attention_heads\":16,"
     "\"num_experts\":64,\"num_experts_per_tok\":8,\"num_hidden_layers\":16,"
     "\"num_key_value_heads\":16,\"output_router_logits\":false,\"pad_token_id\":1,"
     "\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":10000.0,"
     "\"router_aux_loss_coef\":0.01,\"tie_word_embeddings\":false,\"vocab_size\":50304}",
     6919161856, 128, 16, ROPE_PLAIN, 0, 10000, 0, "olmoe-1b-7b"},
};

static void reads_published_models(void **state) {
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        ModelConfig config, preset;
        CLEANUP(model_freep) Model *model = NULL;
        assert_ok(parse(published[i].text, &config));
        assert_ok(model_new(&model, &config));
        if (model_params(model) != published[i].params)
            fail_msg("%s: %lld parameters", published[i].name, (long long)model_params(model));
        assert_int_equal(config_head_width(&config), published[i].head_width);
        assert_int_equal(config_kv_heads(&config), published[i].kv_heads);
        assert_int_equal(config.rope.scaling, published[i].scaling);
        assert_true(config.rope.factor == published[i].factor && config.rope.theta == published[i].theta);
        assert_int_equal(config_window(&config, (int)config.layers - 1), published[i].window);
        same_after_writing(&config);
        if (!published[i].preset) continue;
        assert_ok(config_preset(published[i].preset, &preset));
        if (!config.window) preset.window_from = config.window_from;
        assert_same(&config, &preset);
    }
}

static void mixtures_round_trip(void **state) {
    for (const Family *const *family = families(); *family; family++) {
        ModelConfig config;
        (*family)->defaults(&config);
        if (!config.experts) continue;
        bool sized = config.expert_inner != config.inner; /* experts have a field for their size */
        for (int i = 0; i < 4; i++) {
            config.layers = 7;
            config.experts = 6 + i;
            config.top_k = 1 + i;
            config.expert_inner = 40 + i;
            config.inner = sized ? 96 : config.expert_inner;
            config.balance_coef = 0.013f;
            if (config.shared_inner) config.shared_inner = 56;
            if (sized) config.norm_top_k = i & 1, config.sparse_step = 1 + i / 2;
            config.dense_layers = sized ? i : 0;
            for (int k = 0; k < config.dense_layers; k++) config.dense_layer[k] = 2 * k + i;
            same_after_writing(&config);
        }
        config.window = config.qk_norm_whole ? 0 : 9;
        same_after_writing(&config);
        if (strcmp((*family)->type, "qwen2_moe")) continue;
        config.window_from = 4;
        same_after_writing(&config);
    }
}

/* transformers' defaults, and fields with two names. */
static void fields_of_mixtures(void **state) {
    ModelConfig config;
    assert_ok(parse("{\"model_type\":\"mixtral\",\"num_experts\":5,\"intermediate_size\":60,"
                    "\"sliding_window\":7,\"router_jitter_noise\":0.0,\"output_router_logits\":true}",
                    &config));
    assert_true(config.experts == 5 && config.top_k == 2 && config.expert_inner == 60);
    assert_true(config.norm_top_k && config.window == 7 && config.rope.theta == 1000000);
    assert_true(config_sparse(&config, 0) && config_sparse(&config, 1));
    assert_ok(parse("{\"model_type\":\"qwen3_moe\",\"num_local_experts\":12,\"num_hidden_layers\":6,"
                    "\"decoder_sparse_step\":2,\"mlp_only_layers\":[3,17],\"use_sliding_window\":true,"
                    "\"sliding_window\":5}",
                    &config));
    assert_int_equal(config.experts, 12);
    assert_int_equal(config_head_width(&config), 64);
    for (int i = 0; i < 6; i++) assert_int_equal(config_sparse(&config, i), i == 1 || i == 5);
    for (int i = 0; i < 6; i++) assert_int_equal(config_window(&config, i), 5);
    assert_ok(parse("{\"model_type\":\"qwen3_moe\",\"max_window_layers\":48,\"mlp_only_layers\":null,"
                    "\"num_experts\":9,\"num_local_experts\":9}",
                    &config));
    assert_true(config.window == 0 && config.experts == 9 && !config.norm_top_k && !config.biases);
    assert_ok(parse("{\"model_type\":\"qwen2_moe\",\"qkv_bias\":false,\"sliding_window\":0}", &config));
    assert_true(!config.biases && config.shared_inner == 5632 && config.window == 0);
    assert_ok(parse("{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":3,\"use_sliding_window\":true,"
                    "\"sliding_window\":5,\"layer_types\":[\"full_attention\",\"sliding_attention\","
                    "\"sliding_attention\"]}",
                    &config));
    for (int i = 0; i < 3; i++) assert_int_equal(config_window(&config, i), i ? 5 : 0);
    assert_ok(
        parse("{\"model_type\":\"qwen2_moe\",\"use_sliding_window\":true,\"max_window_layers\":0}", &config));
    assert_int_equal(config.window, 0);
    assert_ok(parse("{\"model_type\":\"olmoe\",\"num_key_value_heads\":null,\"clip_qkv\":null}", &config));
    assert_true(config.qk_norm_whole && config.pad_token == 1 && config.expert_inner == 2048);
}

static void every_end_token_round_trips(void **state) {
    ModelConfig config;
    assert_ok(parse("{\"model_type\":\"gpt2\",\"eos_token_id\":[7,8,6,5,4,3,2,1]}", &config));
    assert_int_equal(config.eos_token, 7);
    assert_int_equal(config.eos_more_count, 7);
    assert_int_equal(config.eos_more[0], 8);
    assert_int_equal(config.eos_more[6], 1);
    same_after_writing(&config);
    CLEANUP(json_decrefp) json_t *json = NULL;
    assert_ok(hf_config_json(&config, &json));
    assert_int_equal(json_array_size(json_object_get(json, "eos_token_id")), 8);
    assert_ok(parse("{\"model_type\":\"gpt2\",\"eos_token_id\":[7]}", &config));
    assert_int_equal(config.eos_more_count, 0);
}

static const struct {
    const char *text, *message;
} refused[] = {
    {"[]", "expected a JSON object"},
    {"{}", "'model_type' is missing"},
    {"{\"model_type\":\"t5\"}", "'model_type' is \"t5\"; expected one of gpt2, bert"},
    {"{\"model_type\":\"llama\",\"hidden_act\":\"relu6\"}", "'hidden_act' is \"relu6\""},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"proportional\",\"factor\":4.0}}",
     "'rope_scaling.rope_type' is \"proportional\""},
    {"{\"model_type\":\"qwen2\",\"rope_scaling\":{\"type\":\"su\",\"factor\":4.0,"
     "\"original_max_position_embeddings\":32768}}",
     "'rope_scaling.type' is \"su\", which weft does not support; expected default, linear, dynamic, llama3, "
     "yarn "
     "or longrope"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\"}}",
     "'rope_scaling.factor' is missing"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":null}}",
     "'rope_scaling.factor' is missing"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":0}}",
     "'factor' is 0; expected"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"beta_fast\":0.5}}",
     "'rope_scaling.beta_fast' is 0.5; expected at least beta_slow, 1"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"attention_factor\":-"
     "1}}",
     "'attention_factor' is -1; expected"},
    {"{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"truncate\":null}}",
     "'rope_scaling.truncate' is null"},
    {"{\"model_type\":\"llama\",\"rope_theta\":1,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4}}",
     "yarn rotary scaling needs a rope_theta above 1"},
    {"{\"model_type\":\"llama\",\"head_dim\":2,\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":4}}",
     "dynamic rotary scaling needs a head width of at least 4, not 2"},
    {"{\"model_type\":\"llama\",\"head_dim\":4,\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":"
     "[1,1]}}",
     "'rope_scaling.long_factor' is missing"},
    {"{\"model_type\":\"llama\",\"head_dim\":4,\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":"
     "2,"
     "\"long_factor\":[1,1]}}",
     "'rope_scaling.short_factor' must be a list of numbers"},
    {"{\"model_type\":\"llama\",\"head_dim\":4,\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":"
     "[1,1],"
     "\"long_factor\":[1,1,1]}}",
     "'rope_scaling.long_factor' has 3 numbers; expected 2"},
    {"{\"model_type\":\"llama\",\"head_dim\":4,\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":"
     "[1,0],"
     "\"long_factor\":[1,1]}}",
     "'rope_scaling.short_factor[1]' must be a number from"},
    {"{\"model_type\":\"llama\",\"head_dim\":258,\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_"
     "factor\":[1],"
     "\"long_factor\":[1]}}",
     "'rope_scaling.short_factor' is for heads of width 258; weft supports up to 256"},
    {"{\"model_type\":\"llama\",\"head_dim\":4,\"max_position_embeddings\":8,\"rope_scaling\":{\"rope_type\":"
     "\"longrope\",\"original_max_position_embeddings\":1,\"short_factor\":[1,1],\"long_factor\":[1,1]}}",
     "longrope rotary scaling by 8 needs an original context of more than 1 token"},
    {"{\"architectures\":[\"LlamaForSequenceClassification\"]}", "is \"LlamaForSequenceClassification\""},
    {"{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_type\":\"linear\"}}",
     "'rope_parameters.factor' is missing"},
    {"{\"model_type\":\"llama\",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}",
     "'rope_parameters.partial_rotary_factor' is 0.5"},
    {"{\"model_type\":\"llama\",\"num_attention_heads\":6,\"hidden_size\":24,\"num_key_value_heads\":4}",
     "6 heads cannot share 4 key-value heads"},
    {"{\"model_type\":7}", "'model_type' must be a string"},
    {"{\"model_type\":\"bert\",\"architectures\":[\"GPT2Model\"]}", "but 'architectures' is \"GPT2Model\""},
    {"{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2DoubleHeadsModel\"]}", "is \"GPT2DoubleHeadsModel\""},
    {"{\"model_type\":\"gpt2\",\"architectures\":{}}", "'architectures' must be a list"},
    {"{\"model_type\":\"gpt2\",\"n_embd\":-1}", "'n_embd' is -1"},
    {"{\"model_type\":\"gpt2\",\"n_embd\":\"x\"}", "'n_embd' must be an integer"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":1000000000}", "'n_layer' is 1000000000"},
    {"{\"model_type\":\"gpt2\",\"n_head\":7}",
     "is not divisible by the number of heads, 7; use 6 or 8 heads"},
    {"{\"model_type\":\"gpt2\",\"n_embd\":1,\"n_head\":7}", "number of heads, 7; use 1 head"},
    {"{\"model_type\":\"gpt2\",\"activation_function\":\"mish\"}", "'activation_function' is \"mish\""},
    {"{\"model_type\":\"gpt2\",\"add_cross_attention\":true}", "'add_cross_attention' is true"},
    {"{\"model_type\":\"gpt2\",\"embd_pdrop\":2}", "'embd_pdrop' is 2"},
    {"{\"model_type\":\"gpt2\",\"eos_token_id\":\"x\"}", "'eos_token_id' must be a token id"},
    {"{\"model_type\":\"gpt2\",\"eos_token_id\":[1,\"x\"]}", "'eos_token_id' must be a token id"},
    {"{\"model_type\":\"gpt2\",\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}",
     "'eos_token_id' lists 9 tokens; expected at most 8"},
    {"{\"model_type\":\"gpt2\",\"quantization_config\":{}}", "'quantization_config' is set"},
    {"{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"awq\"}}",
     "'quantization_config' is set (quant_method \"awq\")"},
    {"{\"model_type\":\"llama\",\"partial_rotary_factor\":0.25}", "'partial_rotary_factor' is 0.25"},
    {"{\"model_type\":\"qwen2\",\"rope_parameters\":{\"full_attention\":{\"rope_theta\":50.0}}}",
     "'rope_parameters.full_attention' has rotary positions of one type of layer"},
    {"{\"model_type\":\"qwen3\",\"rope_scaling\":{\"full_attention\":null}}",
     "'rope_scaling.full_attention' is null"},
    {"{\"model_type\":\"mistral\",\"rope_parameters\":{\"rope_theta\":null}}",
     "'rope_parameters.rope_theta' is null"},
    {"{\"model_type\":\"gpt2\",\"scale_attn_weights\":null}", "'scale_attn_weights' is null"},
    {"{\"model_type\":\"llama\",\"hidden_act\":null}", "'hidden_act' is null"},
    {"{\"model_type\":\"bert\",\"type_vocab_size\":null}", "'type_vocab_size' is null"},
    {"{\"model_type\":\"llama\",\"rope_theta\":null}", "'rope_theta' is null"},
    {"{\"model_type\":\"llama\",\"original_max_position_embeddings\":null,\"rope_parameters\":{\"rope_type\":"
     "\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}",
     "'original_max_position_embeddings' is null"},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"layer_types\":[\"chunked_attention\"]}",
     "'layer_types' has \"chunked_attention\" for layer 0"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":1,\"layer_types\":[\"sliding_attention\"]}",
     "'layer_types' has \"sliding_attention\" for layer 0"},
    {"{\"model_type\":\"gpt2\",\"n_embd\":24,\"hidden_size\":48,\"n_head\":3}",
     "'n_embd' is 24, but 'hidden_size' is 48"},
    {"{\"model_type\":\"gpt2\",\"n_head\":3,\"num_attention_heads\":4}", "'num_attention_heads' is 4"},
    {"{\"model_type\":\"gpt2\",\"n_layer\":3,\"num_hidden_layers\":4}", "'num_hidden_layers' is 4"},
    {"{\"model_type\":\"gpt2\",\"n_positions\":32,\"max_position_embeddings\":64}",
     "'max_position_embeddings' is 64"},
    {"{\"model_type\":\"llama\",\"is_causal\":null}", "'is_causal' must be true or false"},
    {"{\"model_type\":\"gpt2\",\"is_causal\":0}", "'is_causal' must be true or false"},
    {"{\"model_type\":\"mistral\",\"is_causal\":false}", "'is_causal' is false and 'sliding_window' is 4096"},
    {"{\"model_type\":\"qwen3\",\"is_causal\":false,\"use_sliding_window\":true,\"sliding_window\":30,"
     "\"max_position_embeddings\":32}",
     "'is_causal' is false and 'sliding_window' is 30"},
    {"{\"model_type\":\"mixtral\",\"router_jitter_noise\":0.01}", "'router_jitter_noise' is 0.01"},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":0}", "'num_local_experts' is 0"},
    {"{\"model_type\":\"mixtral\",\"num_experts\":4,\"num_local_experts\":8}",
     "'num_experts' is 4, but 'num_local_experts' is 8"},
    {"{\"model_type\":\"mixtral\",\"num_local_experts\":4,\"num_experts_per_tok\":5}",
     "the number of experts per token is 5; expected 1 to 4"},
    {"{\"model_type\":\"mixtral\",\"num_experts_per_tok\":0}", "'num_experts_per_tok' is 0"},
    {"{\"model_type\":\"mixtral\",\"router_aux_loss_coef\":-1}", "'router_aux_loss_coef' is -1"},
    {"{\"model_type\":\"qwen3_moe\",\"moe_intermediate_size\":0}", "'moe_intermediate_size' is 0"},
    {"{\"model_type\":\"qwen3_moe\",\"decoder_sparse_step\":0}", "'decoder_sparse_step' is 0"},
    {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":3}", "'mlp_only_layers' must be a list of layers"},
    {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[-1]}",
     "'mlp_only_layers' must be a list of layers, numbered from 0"},
    {"{\"model_type\":\"qwen2_moe\",\"mlp_only_layers\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
     "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}",
     "'mlp_only_layers' lists 65 layers; weft supports at most 64"},
    {"{\"model_type\":\"qwen2_moe\",\"use_sliding_window\":true}",
     "'use_sliding_window' is true, and layer 0 has a window but layer 1 has none"},
    {"{\"model_type\":\"qwen2_moe\",\"shared_expert_intermediate_size\":0}",
     "'shared_expert_intermediate_size' is 0"},
    {"{\"model_type\":\"olmoe\",\"num_key_value_heads\":4}",
     "'num_key_value_heads' is 4 and 'num_attention_heads' is 16, but weft supports"},
    {"{\"model_type\":\"olmoe\",\"clip_qkv\":8.0}", "'clip_qkv' is 8.0, which weft does not support"},
    {"{\"model_type\":\"olmoe\",\"sliding_window\":7}", "'sliding_window' is 7"},
    {"{\"model_type\":\"olmoe\",\"head_dim\":64}", "'head_dim' is 64; expected 'hidden_size' (2048) divided"},
    {"{\"model_type\":\"bert\",\"is_decoder\":true}", "'is_decoder' is true"},
    {"{\"model_type\":\"bert\",\"position_embedding_type\":\"relative_key\"}",
     "'position_embedding_type' is \"relative_key\""},
    {"{\"model_type\":\"bert\",\"problem_type\":\"ranking\"}",
     "'problem_type' is \"ranking\"; expected regression"},
    {"{\"model_type\":\"bert\",\"id2label\":[]}", "'id2label' must be an object"},
    {"{\"model_type\":\"bert\",\"id2label\":{}}", "'id2label' has 0 labels"},
    {"{\"model_type\":\"bert\",\"num_labels\":5,\"id2label\":{\"0\":\"a\",\"1\":\"b\"}}",
     "'num_labels' is 5, but 'id2label' has 2 labels"},
    {"{\"model_type\":\"bert\",\"weft\":1}", "'weft' must be an object"},
    {"{\"model_type\":\"bert\",\"weft\":{\"heads\":[\"x\"]}}", "'weft.heads' contains \"x\""},
    {"{\"model_type\":\"bert\",\"weft\":{\"heads\":[\"lm\"]}}", "BERT does not support this output head"},
};

static void refuses_the_rest(void **state) {
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        ModelConfig config;
        Status status = parse(refused[i].text, &config);
        if (!status) fail_msg("accepted: %s", refused[i].text);
        if (!strstr(status_message(status), refused[i].message) ||
            strstr(status_message(status), "config.json") != status_message(status))
            fail_msg("expected '%s' in: %s", refused[i].message, status_message(status));
        status_free(status);
    }
}

static void directory_without_config(void **state) {
    const Fixture *fixture = *state;
    ModelConfig config;
    assert_fails(hf_config_read(fixture->dir, &config), 1, "no config.json found");
    assert_fails(hf_config_read(path_of(fixture, "none"), &config), 1, "does not exist");
    put_file(path_of(fixture, "config.json"), "{\"model_type\"");
    assert_fails(hf_config_read(fixture->dir, &config), 1, "config.json: not valid JSON");
    assert_fails(hf_config_read(path_of(fixture, "config.json"), &config), 1, "is not a directory");
}

static void run_without_checkpoint(void **state) {
    const Fixture *fixture = *state;
    const char *run = path_of(fixture, "run");
    ModelConfig config;
    assert_ok(dir_make(path_of(fixture, "run/checkpoints/step-5.tmp")));
    assert_fails(hf_config_read(run, &config), 1,
                 "run is the directory of a run that has not saved a checkpoint");
    put_file(path_of(fixture, "run/config.json"), "{\"model\":\"gpt2\",\"data\":[\"self\"],\"steps\":9}");
    assert_fails(hf_config_read(run, &config), 1,
                 "run is the directory of a run that has not saved a checkpoint");
    assert_ok(dir_remove(path_of(fixture, "run/checkpoints")));
    assert_fails(hf_config_read(run, &config), 1,
                 "run is the directory of a run that has not saved a checkpoint");
    /* A model's own config.json wins, whatever else is in the directory. */
    assert_ok(dir_make(path_of(fixture, "run/checkpoints")));
    put_file(path_of(fixture, "run/config.json"), "{\"model_type\":\"gpt2\",\"model\":\"x\",\"data\":[]}");
    assert_ok(hf_config_read(run, &config));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_fields_are_transformers_defaults),
        cmocka_unit_test(reads_files_of_version_4),
        cmocka_unit_test(classes_are_heads),
        cmocka_unit_test(base_models),
        cmocka_unit_test(problem_types),
        cmocka_unit_test(every_end_token_round_trips),
        cmocka_unit_test(original_length),
        cmocka_unit_test(both_directions),
        cmocka_unit_test(decoders_round_trip),
        cmocka_unit_test(mixtures_round_trip),
        cmocka_unit_test(fields_of_mixtures),
        cmocka_unit_test(scaled_positions),
        cmocka_unit_test(reads_published_models),
        cmocka_unit_test(every_set_of_heads_round_trips),
        cmocka_unit_test(refuses_the_rest),
        cmocka_unit_test_setup_teardown(directory_without_config, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(run_without_checkpoint, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests_name("checkpoint.hf_config", tests, NULL, NULL);
}
