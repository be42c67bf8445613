/* `weft convert --out NAME.gguf`: the file has the model's values, names and vocabulary as llama.cpp expects
 * them. The golden checksums are those of ggml's reference functions. */
#include <math.h>
#include <zlib.h>

#include "checkpoint/gguf_file.h"
#include "checkpoint/safetensors.h"
#include "corpus.h"
#include "weights.h"

#define CASES WEFT_TEST_DIR "/golden/cases/"

static Gguf *gguf_read_at(const char *name) {
    return gguf_read(at(name));
}

static void write_gguf(const char *model, const char *out, const char *dtype) {
    assert_runs(program_run("convert", "--model", model, "--out", at(out), "--dtype", dtype));
}

/* ---- values ---- */

static void reference_rounding(void **state) {
    enum { BLOCKS = 64, COUNT = BLOCKS * GGUF_BLOCK };
    static const struct {
        GgufType type;
        uint32_t checksum;
    } golden[] = {{GGUF_F32, 0x0c107752},
                  {GGUF_F16, 0xe4befcdb},
                  {GGUF_BF16, 0x2e126885},
                  {GGUF_Q8_0, 0xe860eb01},
                  {GGUF_Q4_0, 0x67f43ed5}};
    static float values[COUNT];
    static unsigned char data[4 * COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t hash = i * 2654435761u, block = i / GGUF_BLOCK;
        values[i] = (float)(hash / 2147483648.0 - 1) * exp2f((float)((int)(block % 7) - 3));
        if (block == 0) values[i] = 0;
        if (block == 5) values[i] = i % 2 ? -0.5f : 0.5f;
        if (block == 6) values[i] = i % 2 ? 3 : -3;
    }
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        gguf_convert(golden[i].type, values, COUNT, data);
        uLong sum = crc32(0, data, (uInt)gguf_bytes(golden[i].type, COUNT));
        if (sum != golden[i].checksum) fail_msg("%s: %08lx", gguf_type_name(golden[i].type), sum);
    }
}

static float half_at(const unsigned char *data, bool bf16) {
    uint16_t half;
    memcpy(&half, data, sizeof half);
    return bf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/* Value i of a tensor, and in *step the spacing of the values around it. */
static float value_at(uint32_t type, const unsigned char *data, size_t i, float *step) {
    float value;
    *step = 0;
    switch (type) {
    case GGUF_F32: memcpy(&value, data + 4 * i, sizeof value); return value;
    case GGUF_F16: value = half_at(data + 2 * i, false), *step = fabsf(value) / 1024 + 1e-7f; return value;
    case GGUF_BF16: value = half_at(data + 2 * i, true), *step = fabsf(value) / 128; return value;
    case GGUF_Q8_0:
        data += i / 32 * 34;
        *step = half_at(data, false);
        return *step * (float)(int8_t)data[2 + i % 32];
    default:
        data += i / 32 * 18;
        *step = 2 * fabsf(half_at(data, false)); /* the largest value may be clipped by a step */
        return half_at(data, false) * (float)((data[2 + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15) - 8);
    }
}

static bool has_tensor(const Gguf *g, const char *name) {
    for (uint64_t t = 0; t < g->tensors; t++)
        if (is(g->tensor[t].name, name)) return true;
    return false;
}

/* Row i of a matrix in which each head's rows of the first and the second half alternate. */
static int64_t paired_row(int64_t i, int64_t head_rows) {
    int64_t in_head = i % head_rows;
    return i - in_head + in_head % 2 * (head_rows / 2) + in_head / 2;
}

/* head_rows: 0, or the rows of a head if they are in pairs. */
static void assert_rows(const Gguf *g, const SafeFile *model, const char *name, const char *theirs,
                        bool transposed, int64_t head_rows, uint32_t expected_type) {
    const SafeTensor *tensor = safe_find(model, theirs);
    uint64_t t = 0;
    while (t < g->tensors && !is(g->tensor[t].name, name)) t++;
    if (t == g->tensors || !tensor) fail_msg("no tensor '%s' for '%s'", name, theirs);
    int64_t rows = tensor->ndim == 2 ? tensor->dim[0] : 1, cols = tensor->dim[tensor->ndim - 1];
    int64_t row_size = tensor->ndim == 2 ? cols : 1;
    float *values = calloc((size_t)(rows * cols), sizeof *values);
    assert_ok(values_read(values, tensor, 0, rows * cols));
    assert_int_equal(g->tensor[t].type, expected_type);
    assert_int_equal(g->tensor[t].dims, tensor->ndim);
    assert_int_equal(g->tensor[t].dim[0], transposed ? rows : cols);
    assert_int_equal(g->tensor[t].dim[1], transposed ? cols : rows);
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t row = i / cols, col = i % cols;
        int64_t from = head_rows ? paired_row(i / row_size, head_rows) * row_size + i % row_size : i;
        float step, found = value_at(g->tensor[t].type, g->tensor[t].data,
                                     (size_t)(transposed ? col * rows + row : i), &step);
        if (fabsf(found - values[from]) > 0.5f * step + fabsf(found) / 1000 * (step > 0))
            fail_msg("%s: value %d of type %d is %g, not %g (%g)", name, (int)i, (int)g->tensor[t].type,
                     found, values[from], step);
    }
    free(values);
}

static void assert_values(const Gguf *g, const SafeFile *model, const char *name, const char *theirs,
                          bool transposed, uint32_t expected_type) {
    assert_rows(g, model, name, theirs, transposed, 0, expected_type);
}

typedef struct Names {
    const char *ours, *theirs;
    bool matrix, transposed;
} Names;

static void assert_layers(const Gguf *g, const SafeFile *model, const Names *names, size_t count, int layers,
                          uint32_t type) {
    for (int i = 0; i < layers; i++)
        for (size_t n = 0; n < 2 * count; n++) {
            const Names *name = &names[n / 2];
            char ours[64], theirs[128];
            const char *part = n % 2 ? "bias" : "weight";
            snprintf(ours, sizeof ours, "blk.%d.%s.%s", i, name->ours, part);
            snprintf(theirs, sizeof theirs, name->theirs, i, part);
            bool matrix = name->matrix && n % 2 == 0;
            assert_values(g, model, ours, theirs, matrix && name->transposed, matrix ? type : GGUF_F32);
        }
}

static void gpt2_files(void **state) {
    static const struct {
        const char *dtype;
        uint32_t type, embedding, file;
    } types[] = {{"fp32", GGUF_F32, GGUF_F32, 0},    {"fp16", GGUF_F16, GGUF_F16, 1},
                 {"bf16", GGUF_BF16, GGUF_BF16, 32}, {"q8_0", GGUF_Q8_0, GGUF_Q8_0, 7},
                 {"q4_0", GGUF_Q4_0, GGUF_Q8_0, 2},  {"same", GGUF_F16, GGUF_F16, 1}};
    static const Names names[] = {{"attn_norm", "transformer.h.%d.ln_1.%s", false, false},
                                  {"attn_qkv", "transformer.h.%d.attn.c_attn.%s", true, true},
                                  {"attn_output", "transformer.h.%d.attn.c_proj.%s", true, true},
                                  {"ffn_norm", "transformer.h.%d.ln_2.%s", false, false},
                                  {"ffn_up", "transformer.h.%d.mlp.c_fc.%s", true, true},
                                  {"ffn_down", "transformer.h.%d.mlp.c_proj.%s", true, true}};
    SafeFile *model = NULL;
    assert_ok(safe_open(&model, CASES "gpt2-generate/model.safetensors"));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        char out[32];
        snprintf(out, sizeof out, "%s.gguf", types[i].dtype);
        write_gguf(CASES "gpt2-generate", out, types[i].dtype);
        Gguf *g = gguf_read_at(out);
        assert_text(g, "general.architecture", "gpt2");
        assert_number(g, "general.file_type", types[i].file);
        assert_number(g, "gpt2.context_length", 64);
        assert_number(g, "gpt2.embedding_length", 64);
        assert_number(g, "gpt2.feed_forward_length", 128);
        assert_number(g, "gpt2.attention.head_count", 4);
        assert_number(g, "gpt2.block_count", 3);
        find_key(g, "gpt2.attention.layer_norm_epsilon", VALUE_F32);
        assert_int_equal(g->tensors, 4 + 12 * 3);
        assert_values(g, model, "token_embd.weight", "transformer.wte.weight", false, types[i].embedding);
        assert_values(g, model, "position_embd.weight", "transformer.wpe.weight", false, GGUF_F32);
        assert_values(g, model, "output_norm.weight", "transformer.ln_f.weight", false, GGUF_F32);
        assert_values(g, model, "output_norm.bias", "transformer.ln_f.bias", false, GGUF_F32);
        assert_layers(g, model, names, 6, 3, types[i].type);
        gguf_free(g);
    }
    safe_free(model);
}

/* Llama 3's scaled rotary frequencies are a tensor of divisors: up to `factor` for long wavelengths.
 * llama.cpp reads it for the architecture llama only, so a Qwen with them is refused. */
static void scaled_frequencies(void **state) {
    static const float expected[4] = {1.570796f, 4, 4, 4};
    write_gguf(CASES "llama-3", "scaled.gguf", "bf16");
    write_gguf(CASES "llama", "plain.gguf", "bf16");
    Gguf *g = gguf_read_at("scaled.gguf"), *plain = gguf_read_at("plain.gguf");
    assert_text(g, "general.architecture", "llama");
    uint64_t t = 0;
    while (t < g->tensors && !is(g->tensor[t].name, "rope_freqs.weight")) t++;
    assert_true(t < g->tensors);
    assert_int_equal(g->tensor[t].type, GGUF_F32);
    assert_int_equal(g->tensor[t].dims, 1);
    assert_int_equal(g->tensor[t].dim[0], 4);
    for (int i = 0; i < 4; i++) {
        float found;
        memcpy(&found, g->tensor[t].data + 4 * i, sizeof found);
        assert_true(fabsf(found - expected[i]) <= 1e-5f * expected[i]);
    }
    for (t = 0; t < plain->tensors; t++) assert_false(is(plain->tensor[t].name, "rope_freqs.weight"));
    gguf_free(g);
    gguf_free(plain);
    assert_refused(1, "it does not support Llama 3's scaled rotary positions in this family", "convert",
                   "--model", CASES "qwen3-llama3", "--out", at("q.gguf"));
}

static void assert_real(Gguf *g, const char *key, float expected) {
    float found;
    find_key(g, key, VALUE_F32);
    memcpy(&found, take(g, 4), sizeof found);
    if (fabsf(found - expected) > 1e-6f) fail_msg("%s: %.9g", key, (double)found);
}

static void assert_factors(const Gguf *g, const char *name, const float expected[4]) {
    uint64_t t = 0;
    while (t < g->tensors && !is(g->tensor[t].name, name)) t++;
    assert_true(t < g->tensors);
    assert_int_equal(g->tensor[t].type, GGUF_F32);
    assert_int_equal(g->tensor[t].dim[0], 4);
    assert_memory_equal(g->tensor[t].data, expected, 4 * sizeof *expected);
}

/* Other scaled rotary positions are keys; longrope's factors are tensors. */
static void scaled_positions(void **state) {
    static const float short_factor[4] = {1, 1.1f, 1.25f, 1.5f}, long_factor[4] = {1, 1.5f, 2.75f, 4};
    write_gguf(CASES "llama-bias", "linear.gguf", "bf16");
    Gguf *g = gguf_read_at("linear.gguf");
    assert_text(g, "llama.rope.scaling.type", "linear");
    assert_real(g, "llama.rope.scaling.factor", 2);
    gguf_free(g);
    write_gguf(CASES "llama-yarn", "yarn.gguf", "bf16");
    g = gguf_read_at("yarn.gguf");
    assert_text(g, "llama.rope.scaling.type", "yarn");
    assert_number(g, "llama.context_length", 40);
    assert_number(g, "llama.rope.scaling.original_context_length", 10);
    assert_real(g, "llama.rope.scaling.factor", 4);
    assert_real(g, "llama.rope.scaling.attn_factor", 1);
    gguf_free(g);
    /* llama.cpp multiplies by 0.1 ln(factor) + 1; the model has that for mscale 1, divided by that for 0.5.
     */
    assert_runs(shell("cp -r " CASES "qwen3-yarn yarn && chmod -R u+w yarn && "
                      "sed -i 's/\"truncate\": false/\"truncate\": true/;/\"beta_/d' yarn/config.json"));
    write_gguf(at("yarn"), "scaled-yarn.gguf", "bf16");
    g = gguf_read_at("scaled-yarn.gguf");
    assert_number(g, "qwen3.context_length", 48); /* the original one times the factor */
    assert_real(g, "qwen3.rope.scaling.attn_factor", 1 / (0.05f * logf(4) + 1));
    gguf_free(g);
    write_gguf(CASES "llama-longrope", "long.gguf", "bf16");
    g = gguf_read_at("long.gguf");
    assert_text(g, "llama.rope.scaling.type", "longrope");
    assert_number(g, "llama.rope.scaling.original_context_length", 12);
    assert_real(g, "llama.rope.scaling.attn_factor", sqrtf(1 + logf(40 / 12.0f) / logf(12)));
    assert_factors(g, "rope_factors_short.weight", short_factor);
    assert_factors(g, "rope_factors_long.weight", long_factor);
    gguf_free(g);
    assert_runs(shell("cp -r " CASES "qwen3-llama3 long && chmod -R u+w long && "
                      "cp " CASES "llama-longrope/config.json long && "
                      "sed -i 's/llama/qwen3/;s/LlamaFor/Qwen3For/' long/config.json"));
    assert_refused(1, "it does not support longrope rotary scaling in this family", "convert", "--model",
                   at("long"), "--out", at("q.gguf"));
    assert_refused(1, "it does not support dynamic rotary scaling", "convert", "--model",
                   CASES "llama-dynamic", "--out", at("q.gguf"));
    assert_refused(1, "it does not support yarn's 'beta_fast', 'beta_slow' and 'truncate' in this family",
                   "convert", "--model", CASES "qwen3-yarn", "--out", at("q.gguf"));
}

static void bert_files(void **state) {
#define LAYER "bert.encoder.layer.%d."
    static const Names names[] = {{"attn_q", LAYER "attention.self.query.%s", true, false},
                                  {"attn_k", LAYER "attention.self.key.%s", true, false},
                                  {"attn_v", LAYER "attention.self.value.%s", true, false},
                                  {"attn_output", LAYER "attention.output.dense.%s", true, false},
                                  {"attn_output_norm", LAYER "attention.output.LayerNorm.%s", false, false},
                                  {"ffn_up", LAYER "intermediate.dense.%s", true, false},
                                  {"ffn_down", LAYER "output.dense.%s", true, false},
                                  {"layer_output_norm", LAYER "output.LayerNorm.%s", false, false}};
    SafeFile *model = NULL;
    assert_ok(safe_open(&model, CASES "bert-nsp/model.safetensors"));
    write_gguf(CASES "bert-nsp", "bert.gguf", "fp32");
    Gguf *g = gguf_read_at("bert.gguf");
    assert_text(g, "general.architecture", "bert");
    assert_text(g, "tokenizer.ggml.model", "none");
    find_key(g, "bert.attention.causal", VALUE_BOOL);
    assert_int_equal(*(const char *)take(g, 1), 0);
    assert_number(g, "bert.pooling_type", 1);
    assert_number(g, "tokenizer.ggml.token_type_count", 2);
    find_key(g, "bert.block_count", VALUE_U32);
    int layers = (int)take_u32(g);
    assert_int_equal(g->tensors, 5 + 16 * layers); /* no output heads */
    assert_values(g, model, "token_embd.weight", "bert.embeddings.word_embeddings.weight", false, GGUF_F32);
    assert_values(g, model, "token_types.weight", "bert.embeddings.token_type_embeddings.weight", false,
                  GGUF_F32);
    assert_values(g, model, "token_embd_norm.bias", "bert.embeddings.LayerNorm.bias", false, GGUF_F32);
    assert_layers(g, model, names, 8, layers, GGUF_F32);
    gguf_free(g);
    safe_free(model);
}

/* Llama and its relatives. `change` is a sed script for config.json. */
static const struct Decoder {
    const char *name, *change, *architecture;
    int64_t paired; /* rows of a head of q and k; 0: not in pairs */
    uint32_t context, width, tensors;
} decoders[] = {
    {"llama", "", "llama", 8, 40, 8, 3 + 9 * 2},
    {"llama-bias", "", "llama", 8, 40, 8, 3 + 16 * 2},
    {"mistral", "", "llama", 8, 7, 8, 3 + 9 * 2}, /* the window */
    {"qwen2",
     "s/\"use_sliding_window\": true/\"use_sliding_window\": false/;s/sliding_attention/full_attention/",
     "qwen2", 0, 40, 8, 2 + 12 * 2},
    {"qwen3", "s/\"attention_bias\": true/\"attention_bias\": false/", "qwen3", 0, 40, 12, 3 + 11 * 2},
};

static void assert_decoder(const struct Decoder *d) {
    static const struct {
        const char *ours, *theirs;
        bool heads; /* of q or k */
    } names[] = {{"attn_norm", "input_layernorm", false},    {"attn_q", "self_attn.q_proj", true},
                 {"attn_k", "self_attn.k_proj", true},       {"attn_v", "self_attn.v_proj", false},
                 {"attn_q_norm", "self_attn.q_norm", false}, {"attn_k_norm", "self_attn.k_norm", false},
                 {"attn_output", "self_attn.o_proj", false}, {"ffn_norm", "post_attention_layernorm", false},
                 {"ffn_gate", "mlp.gate_proj", false},       {"ffn_up", "mlp.up_proj", false},
                 {"ffn_down", "mlp.down_proj", false}};
    char command[512], out[64], key[64], ours[64], theirs[128];
    snprintf(command, sizeof command, "cp -r " CASES "%s %s && chmod -R u+w %s && sed -i '%s' %s/config.json",
             d->name, d->name, d->name, d->change, d->name);
    assert_runs(shell(command));
    snprintf(out, sizeof out, "%s.gguf", d->name);
    write_gguf(at(d->name), out, "fp32");
    Gguf *g = gguf_read_at(out);
    SafeFile *model = NULL;
    snprintf(theirs, sizeof theirs, "%s/model.safetensors", d->name);
    assert_ok(safe_open(&model, at(theirs)));
    assert_text(g, "general.architecture", d->architecture);
    snprintf(key, sizeof key, "%s.context_length", d->architecture);
    assert_number(g, key, d->context);
    snprintf(key, sizeof key, "%s.attention.key_length", d->architecture);
    assert_number(g, key, d->width);
    assert_int_equal(g->tensors, d->tensors);
    assert_values(g, model, "token_embd.weight", "model.embed_tokens.weight", false, GGUF_F32);
    assert_values(g, model, "output_norm.weight", "model.norm.weight", false, GGUF_F32);
    unsigned compared = 2;
    for (size_t i = 0; i < 2 * 2 * sizeof names / sizeof *names; i++) {
        const char *part = i % 2 ? "bias" : "weight";
        int layer = (int)(i / 2 % 2);
        snprintf(ours, sizeof ours, "blk.%d.%s.%s", layer, names[i / 4].ours, part);
        snprintf(theirs, sizeof theirs, "model.layers.%d.%s.%s", layer, names[i / 4].theirs, part);
        if (!has_tensor(g, ours)) continue;
        assert_rows(g, model, ours, theirs, false, names[i / 4].heads ? d->paired : 0, GGUF_F32);
        compared++;
    }
    if (has_tensor(g, "output.weight")) {
        assert_values(g, model, "output.weight", "lm_head.weight", false, GGUF_F32);
        compared++;
    }
    assert_int_equal(compared, d->tensors);
    gguf_free(g);
    safe_free(model);
}

static void decoder_files(void **state) {
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) assert_decoder(&decoders[i]);
}

/* ---- reading ---- */

/* A file that was read and written again is the same, whatever its type: weights, sizes and vocabulary. */
static void assert_round_trip(const char *model, const char *dtype) {
    write_gguf(model, "once.gguf", dtype);
    assert_runs(program_run("convert", at("once.gguf"), at("read"), "--json"));
    write_gguf(at("read"), "twice.gguf", dtype);
    assert_runs(shell("cmp once.gguf twice.gguf && rm -r once.gguf twice.gguf read"));
}

static void round_trips(void **state) {
    static const char *const models[] = {"gpt2",           "llama",   "llama-3", "llama-bias", "llama-yarn",
                                         "llama-longrope", "mistral", "mixtral", "olmoe",      "bert-bare"};
    static const char *const dtypes[] = {"fp32", "bf16", "fp16", "q8_0", "q4_0"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[512];
        snprintf(path, sizeof path, CASES "%s", models[i]);
        assert_round_trip(path, "fp32");
        for (int k = 1; k < 5 && i < 2; k++) assert_round_trip(path, dtypes[k]);
    }
    assert_round_trip(at("qwen2"), "fp32"); /* which decoder_files has made */
    assert_round_trip(at("qwen3"), "fp32");
}

/* A run's file generates, evaluates and trains as the run does. */
static void used_as_model(void **state) {
    put_sentences("text.txt", 200, 1, false);
    assert_runs(program_run("train", "--model", "llama-1m", "--hidden", "32", "--heads", "4", "--layers", "2",
                            "--data", at("text.txt"), "--seq", "32", "--batch", "2", "--steps", "2", "--out",
                            at("gguf-run"), "--json"));
    write_gguf(at("gguf-run"), "gguf-run.gguf", "fp32");
    Ran one = program_run("generate", at("gguf-run"), "A text", "--greedy", "--max-tokens", "8");
    Ran other = program_run("generate", at("gguf-run.gguf"), "A text", "--greedy", "--max-tokens", "8");
    assert_int_equal(other.code, 0);
    assert_string_equal(one.out, other.out);
    ran_done(&one);
    ran_done(&other);
    one = program_run("eval", at("gguf-run"), "--data", at("text.txt"), "--json");
    other = program_run("eval", at("gguf-run.gguf"), "--data", at("text.txt"), "--json");
    assert_true(number_in(&one, "loss") == number_in(&other, "loss"));
    ran_done(&one);
    ran_done(&other);
    Ran info = program_run("info", at("gguf-run.gguf"));
    assert_contains(info.out, "llama, 2 layers, hidden size 32, 4 heads");
    ran_done(&info);
    assert_runs(program_run("train", "--model", at("gguf-run.gguf"), "--data", at("text.txt"), "--seq", "32",
                            "--batch", "2", "--steps", "1", "--out", at("tuned"), "--json"));
}

static void bad_files(void **state) {
    put_text("bad.gguf", "GGUF and then something else");
    assert_refused(1, "bad.gguf: GGUF version", "convert", at("bad.gguf"), at("no"));
    put_text("bad.gguf", "no");
    assert_refused(1, "bad.gguf: not a valid GGUF file: it is truncated", "generate", at("bad.gguf"), "A");
    write_gguf(CASES "llama", "cut.gguf", "fp32");
    assert_runs(shell("truncate -s -100 cut.gguf"));
    assert_refused(1, "is outside the file; is it complete?", "generate", at("cut.gguf"), "A");
}

/* ---- mixtures of experts ---- */

/* The matrices of all experts of a layer, one per tensor of the model: `theirs` has the layer and the expert.
 */
static void assert_experts(const Gguf *g, const SafeFile *model, const char *ours, const char *theirs,
                           int layer, uint64_t experts, uint32_t type) {
    char name[64], other[128];
    uint64_t t = 0;
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, ours);
    while (t < g->tensors && !is(g->tensor[t].name, name)) t++;
    if (t == g->tensors) fail_msg("no tensor '%s'", name);
    assert_int_equal(g->tensor[t].dims, 3);
    assert_int_equal(g->tensor[t].dim[2], experts);
    assert_int_equal(g->tensor[t].type, type);
    for (uint64_t e = 0; e < experts; e++) {
        snprintf(other, sizeof other, theirs, layer, (int)e);
        const SafeTensor *tensor = safe_find(model, other);
        if (!tensor) fail_msg("no tensor '%s'", other);
        int64_t count = tensor->dim[0] * tensor->dim[1];
        assert_int_equal(g->tensor[t].dim[0], tensor->dim[1]);
        assert_int_equal(g->tensor[t].dim[1], tensor->dim[0]);
        CLEANUP(mem_freep) float *values = calloc((size_t)count, sizeof *values);
        assert_ok(values_read(values, tensor, 0, count));
        for (int64_t i = 0; i < count; i++) {
            float step, found = value_at(type, g->tensor[t].data, e * (uint64_t)count + (uint64_t)i, &step);
            assert_true(fabsf(found - values[i]) <= 0.5f * step + fabsf(found) / 1000 * (step > 0));
        }
    }
}

static const struct Mixture {
    const char *model, *architecture, *router, *experts; /* names in transformers */
    const char *parts[3];                                /* gate, up, down */
    uint32_t count, used, inner, shared;
} mixtures[] = {
    {CASES "mixtral",
     "llama",
     "block_sparse_moe.gate",
     "block_sparse_moe.experts",
     {"w1", "w3", "w2"},
     4,
     2,
     24,
     0},
    {CASES "olmoe", "olmoe", "mlp.gate", "mlp.experts", {"gate_proj", "up_proj", "down_proj"}, 8, 2, 16, 0},
    {"qwen2moe", "qwen2moe", "mlp.gate", "mlp.experts", {"gate_proj", "up_proj", "down_proj"}, 3, 2, 32, 176},
    {"qwen3moe", "qwen3moe", "mlp.gate", "mlp.experts", {"gate_proj", "up_proj", "down_proj"}, 3, 2, 32, 0},
};

static void assert_mixture(const struct Mixture *m, const char *model, const char *dtype, uint32_t type) {
    static const char *const ours[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    char out[64], key[64], path[256], theirs[128], router[64];
    snprintf(out, sizeof out, "%s-%s.gguf", m->architecture, dtype);
    write_gguf(model, out, dtype);
    Gguf *g = gguf_read_at(out);
    SafeFile *file = NULL;
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    assert_ok(safe_open(&file, path));
    assert_text(g, "general.architecture", m->architecture);
    const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"expert_count", m->count},
                 {"expert_used_count", m->used},
                 {"expert_feed_forward_length", m->inner},
                 {"expert_shared_feed_forward_length", m->shared}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", m->architecture, sizes[i].key);
        if (sizes[i].value) assert_number(g, key, sizes[i].value);
    }
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < 3; i++) {
            snprintf(theirs, sizeof theirs, "model.layers.%%d.%s.%%d.%s.weight", m->experts, m->parts[i]);
            assert_experts(g, file, ours[i], theirs, layer, m->count, type);
        }
        snprintf(router, sizeof router, "blk.%d.ffn_gate_inp.weight", layer);
        snprintf(theirs, sizeof theirs, "model.layers.%d.%s.weight", layer, m->router);
        assert_values(g, file, router, theirs, false, GGUF_F32);
        snprintf(router, sizeof router, "blk.%d.ffn_gate_inp_shexp.weight", layer);
        assert_int_equal(has_tensor(g, router), m->shared > 0);
        if (!m->shared) continue;
        static const char *const shared[][2] = {
            {"gate", "gate_proj"}, {"up", "up_proj"}, {"down", "down_proj"}};
        for (int i = 0; i < 3; i++) {
            snprintf(router, sizeof router, "blk.%d.ffn_%s_shexp.weight", layer, shared[i][0]);
            snprintf(theirs, sizeof theirs, "model.layers.%d.mlp.shared_expert.%s.weight", layer,
                     shared[i][1]);
            bool halves = i == 2 && type == GGUF_Q8_0 && m->shared % 32; /* rows are not whole blocks */
            assert_values(g, file, router, theirs, false, halves ? GGUF_F16 : type);
        }
    }
    gguf_free(g);
    safe_free(file);
}

#define TRAINED(model, out, ...)                                                                             \
    program_run("train", "--model", model, "--layers", "2", "--hidden", "64", "--heads", "4", "--experts",   \
                "3", "--top-k", "2", "--expert-inner", "32", "--steps", "1", "--batch", "1", "--seq", "16",  \
                "--data", "self", "--eval-batches", "1", "--out", at(out), __VA_ARGS__)

/* The experts of a layer are one tensor, in every type. */
static void mixture_files(void **state) {
    (void)state;
    char model[256];
    assert_runs(TRAINED("qwen1.5-moe-a2.7b", "qwen2moe", "--quiet"));
    assert_runs(TRAINED("qwen3-0.6b", "qwen3moe", "--quiet"));
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        const struct Mixture *m = &mixtures[i];
        bool trained = m->model[0] == 'q';
        snprintf(model, sizeof model, "%s%s", trained ? at(m->model) : m->model, trained ? "/latest" : "");
        assert_mixture(m, model, "fp32", GGUF_F32);
        if (trained) assert_mixture(m, model, "q8_0", GGUF_Q8_0);
    }
    static const struct {
        const char *model, *change, *reason;
    } unsupported[] = {
        {CASES "qwen2-moe", "", "layers without experts among others"},
        {"qwen2moe/latest", "s/norm_topk_prob\": false/norm_topk_prob\": true/",
         "normalized weights of experts"},
        {"qwen3moe/latest", "s/norm_topk_prob\": true/norm_topk_prob\": false/",
         "do not sum to 1 in this family"},
        {CASES "olmoe-bias", "s/norm_topk_prob\": true/norm_topk_prob\": false/",
         "an embedding that serves as output matrix"},
    };
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        char command[512];
        const char *from = unsupported[i].model[0] == 'q' ? at(unsupported[i].model) : unsupported[i].model;
        snprintf(command, sizeof command,
                 "rm -rf other && cp -rL %s other && chmod -R u+w other && sed -i '%s' other/config.json",
                 from, unsupported[i].change);
        assert_runs(shell(command));
        assert_refused(1, unsupported[i].reason, "convert", at("other"), at("x.gguf"));
    }
}

/* ---- vocabularies ---- */

static void byte_vocabulary(void **state) {
    write_gguf(CASES "gpt2-generate", "bytes.gguf", "fp32");
    Gguf *g = gguf_read_at("bytes.gguf");
    assert_text(g, "tokenizer.ggml.model", "gpt2");
    assert_text(g, "tokenizer.ggml.pre", "gpt-2");
    assert_int_equal(find_array(g, "tokenizer.ggml.tokens", VALUE_TEXT), 257);
    assert_int_equal(find_array(g, "tokenizer.ggml.merges", VALUE_TEXT), 0);
    assert_token(g, 'a', "a", 1);
    assert_token(g, ' ', "\xC4\xA0", 1);
    assert_token(g, 256, "<|endoftext|>", 3);
    assert_number(g, "tokenizer.ggml.eos_token_id", 256);
    gguf_free(g);
}

static void bpe_vocabulary(void **state) {
    put_sentences("text.txt", 200, 1, false);
    Ran ran =
        shell("$WEFT tokenizer train --vocab 270 --data text.txt --out tok --quiet && "
              "$WEFT train --model gpt2-tiny --layers 1 --hidden 32 --heads 2 --seq 16 --batch 1 --steps 1 "
              "--vocab 288 --threads 1 --tokenizer tok --data text.txt --val-fraction 0 --quiet --out run");
    if (ran.code) fail_msg("%s", ran.err);
    ran_done(&ran);
    write_gguf(at("run"), "bpe.gguf", "same");
    Gguf *g = gguf_read_at("bpe.gguf");
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    assert_ok(tokenizer_load(&tokenizer, at("tok")));
    assert_int_equal(find_array(g, "tokenizer.ggml.tokens", VALUE_TEXT), 288);
    for (int32_t id = 0; id < 270; id++) {
        size_t size;
        const char *token = tokenizer_token(tokenizer, id, &size);
        Text text = take_text(g);
        assert_int_equal(text.size, size);
        assert_memory_equal(text.data, token, size);
    }
    assert_true(is(take_text(g), "[PAD270]"));
    assert_token(g, 287, "[PAD287]", 5);
    assert_token(g, (uint64_t)tokenizer_special(tokenizer).end, "<|endoftext|>", 3);
    size_t merges = find_array(g, "tokenizer.ggml.merges", VALUE_TEXT);
    assert_int_equal(merges, tokenizer_merge_count(tokenizer));
    assert_true(merges > 5);
    Text first = take_text(g);
    CLEANUP(mem_freep) char *expected = NULL;
    assert_ok(tokenizer_merge(tokenizer, 0, &expected));
    assert_true(is(first, expected));
    gguf_free(g);
}

/* A word's first piece has a mark, its others none. */
static void wordpiece_vocabulary(void **state) {
    Ran ran =
        shell("cp -r " CASES "bert-nsp pieces && printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\n##cd\n' "
              ">pieces/vocab.txt");
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    write_gguf(at("pieces"), "pieces.gguf", "fp16");
    Gguf *g = gguf_read_at("pieces.gguf");
    assert_text(g, "tokenizer.ggml.model", "bert");
    assert_token(g, 2, "[CLS]", 3);
    assert_token(g, 5, "\xE2\x96\x81\x61\x62", 1);
    assert_token(g, 6, "cd", 1);
    assert_token(g, 7, "[PAD7]", 5);
    assert_number(g, "tokenizer.ggml.bos_token_id", 2);
    assert_number(g, "tokenizer.ggml.seperator_token_id", 3);
    find_key(g, "tokenizer.ggml.normalizer.lowercase", VALUE_BOOL);
    gguf_free(g);
}

static void refusals(void **state) {
    put_text("there.gguf", "x");
    assert_refused(1, "there.gguf already exists", "convert", "--model", CASES "gpt2", "--out",
                   at("there.gguf"));
    assert_refused(2, "needs a GGUF file", "convert", "--model", CASES "gpt2", "--out", at("x"), "--dtype",
                   "q8_0");
    assert_refused(2, "cannot be combined with --sparse", "convert", "--model", CASES "gpt2", "--out",
                   at("x.gguf"), "--max-shard-size", "1MB");
    static const struct {
        const char *model, *reason;
    } unsupported[] = {{CASES "gpt2-unscaled-relu", "unscaled attention scores"},
                       {CASES "gpt2-layer-scale", "attention scores scaled by layer"},
                       {CASES "qwen2", "sliding windows in this family"},
                       {CASES "qwen3", "a bias of the attention output in this family"}};
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        assert_refused(1, unsupported[i].reason, "convert", "--model", unsupported[i].model, "--out",
                       at("x.gguf"));
    copy_with_nan(CASES "gpt2-generate", at("nan"), "transformer.h.0.mlp.c_fc.weight");
    assert_refused(1, "tensor 'blk.0.ffn_up.weight' contains a weight that is not finite", "convert",
                   "--model", at("nan"), "--out", at("x.gguf"), "--dtype", "q8_0");
    assert_refused(1, "it cannot be converted to q4_0", "convert", "--model", at("nan"), "--out",
                   at("x.gguf"), "--dtype", "q4_0");
    assert_false(path_exists(at("x.gguf")));
    write_gguf(at("nan"), "nan.gguf", "fp16");
}

static int setup(void **state) {
    return corpus_setup(state) || setenv("WEFT", WEFT_BINARY, 1) ? -1 : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_rounding), cmocka_unit_test(gpt2_files),
        cmocka_unit_test(bert_files),         cmocka_unit_test(decoder_files),
        cmocka_unit_test(round_trips),        cmocka_unit_test(used_as_model),
        cmocka_unit_test(bad_files),          cmocka_unit_test(byte_vocabulary),
        cmocka_unit_test(bpe_vocabulary),     cmocka_unit_test(wordpiece_vocabulary),
        cmocka_unit_test(refusals),           cmocka_unit_test(scaled_frequencies),
        cmocka_unit_test(scaled_positions),   cmocka_unit_test(mixture_files),
    };
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
