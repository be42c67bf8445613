/* Other tools' names of commands and values, and the lookup of all. A name may have several rows; the first
 * that applies to the command counts. */
#include "cli/foreign.h"

#include <string.h>
#include <strings.h>

#include "base/memory.h"

#define NANOGPT      "nanoGPT"
#define TRANSFORMERS "transformers"
#define MEGATRON     "Megatron-LM"
#define DEEPSPEED    "DeepSpeed"
#define LLAMA        "llama.cpp"
#define LIGHTNING    "Lightning"

static const ForeignCommand commands[] = {
    {"sample", NANOGPT, "weft generate", "generating text"},
    {"run", "ollama", "weft generate", "generating text"},
    {"infer", LLAMA, "weft generate", "generating text"},
    {"inference", LLAMA, "weft generate", "generating text"},
    {"complete", LLAMA, "weft generate", "generating text"},
    {"completion", LLAMA, "weft generate", "generating text"},
    {"chat", LLAMA, "weft generate --interactive", "continuing a text interactively"},
    {"cli", LLAMA, "weft generate", "generating text"},
    {"predict", TRANSFORMERS, "weft eval", "running a model on a dataset"},
    {"test", LIGHTNING, "weft eval", "evaluating a model"},
    {"validate", LIGHTNING, "weft eval", "evaluating a model"},
    {"perplexity", LLAMA, "weft eval", "evaluating a model"},
    {"pretrain", MEGATRON, "weft train", "training from scratch"},
    {"fit", LIGHTNING, "weft train", "training"},
    {"finetune", LLAMA, "weft train --model DIR", "training from a checkpoint"},
    {"fine-tune", LLAMA, "weft train --model DIR", "training from a checkpoint"},
    {"resume", NANOGPT, "weft train --out RUN --resume", "continuing a run"},
    {"launch", "accelerate", "weft train --ranks N", "starting several processes"},
    {"torchrun", "PyTorch", "weft train --ranks N", "starting several processes"},
    {"qa", TRANSFORMERS, "weft answer", "answering questions"},
    {"download", "huggingface-cli", "weft fetch", "downloading files"},
    {"pull", "ollama", "weft fetch", "downloading files"},
    {"preprocess", MEGATRON, "weft prepare", "tokenizing a corpus"},
    {"tokenize", LLAMA, "weft tokenizer encode", "converting text to tokens"},
    {"encode", "tokenizers", "weft tokenizer encode", "converting text to tokens"},
    {"decode", "tokenizers", "weft tokenizer decode", "converting tokens to text"},
    {"detokenize", LLAMA, "weft tokenizer decode", "converting tokens to text"},
    {"export", "optimum", "weft convert", "writing a checkpoint in another form"},
    {"merge", MEGATRON, "weft convert", "writing a checkpoint in another form"},
    {"profile", LIGHTNING, "weft bench", "measuring a step"},
    {"estimate", "accelerate", "weft plan", "predicting memory"},
    {"estimate-memory", "accelerate", "weft plan", "predicting memory"},
    {"sweep", "wandb", "weft compare", "running several variants"},
    {"tune", LIGHTNING, "weft plan --search", "searching for a layout"},
    {"autotune", DEEPSPEED, "weft plan --search", "searching for a layout"},
    {"env", "accelerate", "weft info", "describing this machine"},
    {"show", "ollama", "weft info", "describing a model"},
    {"tensorboard", "TensorBoard", "weft report --serve", "following runs"},
    {"lora", "axolotl", NULL, "weft trains all weights: 'weft train --model DIR'"},
    {"dpo", "TRL", NULL, "weft has no preference training; 'weft train --model DIR' fine-tunes on text"},
    {"sft", "TRL", "weft train --model DIR", "fine-tuning"},
    {"quant", LLAMA, "weft quantize", "quantizing a model"},
    {"serve", LLAMA, NULL, "weft has no server"},
    {"server", LLAMA, NULL, "weft has no server"},
    {0},
};

static const ForeignValue values[] = {
    {"optimizer", "adam", "adamw"},
    {"optimizer", "fusedadam", "adamw"},
    {"optimizer", "adamw_torch", "adamw"},
    {"optimizer", "adamw_torch_fused", "adamw"},
    {"optimizer", "adamw_hf", "adamw"},
    {"optimizer", "lion_32bit", "lion"},
    {"optimizer", "dist_muon", "muon"},
    {"precision", "bfloat16", "bf16"},
    {"precision", "torch.bfloat16", "bf16"},
    {"precision", "bf16-mixed", "bf16"},
    {"precision", "bf16-true", "bf16"},
    {"precision", "float16", "fp16"},
    {"precision", "torch.float16", "fp16"},
    {"precision", "half", "fp16"},
    {"precision", "f16", "fp16"},
    {"precision", "16", "fp16"},
    {"precision", "16-mixed", "fp16"},
    {"precision", "float32", "fp32"},
    {"precision", "torch.float32", "fp32"},
    {"precision", "float", "fp32"},
    {"precision", "f32", "fp32"},
    {"precision", "32", "fp32"},
    {"precision", "no", "fp32"},
    {"precision", "e4m3", "fp8"},
    {"precision", "hybrid", "fp8"},
    {"fp8-scaling", "tensorwise", "exact"},
    {"dtype", "bfloat16", "bf16"},
    {"dtype", "float16", "fp16"},
    {"dtype", "half", "fp16"},
    {"dtype", "f16", "fp16"},
    {"dtype", "float32", "fp32"},
    {"dtype", "float", "fp32"},
    {"dtype", "f32", "fp32"},
    {"dtype", "auto", "same"},
    {"kv", "bfloat16", "bf16"},
    {"kv", "float32", "fp32"},
    {"kv", "f32", "fp32"},
    {"kv", "q8_0", "int8"},
    {"device", "gpu", "cuda"},
    {"device", "cuda:0", "cuda"},
    {"device", "nvidia", "cuda"},
    {"schedule", "constant_with_warmup", "constant"},
    {"schedule", "none", "constant"},
    {"schedule", "cosine_annealing", "cosine"},
    {"warmup-type", "logarithmic", "log"},
    {"recompute", "full", "block"},
    {"recompute", "uniform", "block"},
    {"recompute", "off", "none"},
    {"offload", "cpu", "optimizer"},
    {"offload", "param", "params"},
    {"pp-schedule", "1F1B", "1f1b"},
    {"pp-schedule", "interleaved-1f1b", "interleaved"},
    {"pp-schedule", "vpp", "interleaved"},
    {"pp-schedule", "zb", "zero-bubble"},
    {"pp-schedule", "zbh1", "zero-bubble"},
    {"task", "clm", "lm"},
    {"task", "causal-lm", "lm"},
    {"task", "causal_lm", "lm"},
    {"task", "text-generation", "lm"},
    {"task", "masked-lm", "mlm"},
    {"task", "fill-mask", "mlm"},
    {"task", "question-answering", "span"},
    {"task", "qa", "span"},
    {"task", "text-classification", "classify"},
    {"task", "classification", "classify"},
    {"task", "sequence-classification", "classify"},
    {"problem-type", "single_label_classification", "single-label"},
    {"problem-type", "multi_label_classification", "multi-label"},
    {"format", "txt", "text"},
    {"format", "bin", "u16"},
    {"format", "csv", "records"},
    {"format", "tsv", "records"},
    {"kind", "unstructured", "weights"},
    {"kind", "neurons", "rows"},
    {"model", "gpt2-124M", "gpt2"},
    {"model", "gpt2-small-124M", "gpt2"},
    {"model", "gpt2-355M", "gpt2-medium"},
    {"model", "gpt2-774M", "gpt2-large"},
    {"model", "gpt2-1.5B", "gpt2-xl"},
    {0},
};

const ForeignCommand *foreign_commands(void) {
    return commands;
}

const ForeignValue *foreign_values(void) {
    return values;
}

/* `name` may end with "=VALUE", which must then be the value, or with "*", for any rest. */
static bool same_name(const char *typed, const char *value, const char *name) {
    for (; *typed && *name && *name != '*'; typed++, name++)
        if ((*typed == '_' ? '-' : *typed) != *name) return false;
    if (*name == '*') return true;
    return !*typed && (!*name || (*name == '=' && value && !strcasecmp(value, name + 1)));
}

enum { OWNER_SIZE = 32 };

static const char *possessive(const char *tool, char *buffer) {
    bool plural = tool[strlen(tool) - 1] == 's';
    snprintf(buffer, OWNER_SIZE, "%s'%s", tool, plural ? "" : "s");
    return buffer;
}

/* The slot of the option that `use` starts with; NULL if the command has none, or one of another type. */
static Slot *slot_of(const Invocation *call, const char *use) {
    char name[64];
    size_t length = strcspn(use, " ");
    snprintf(name, sizeof name, "%.*s", (int)length - 2, use + 2);
    Slot *slot = invocation_slot(call, name);
    if (!slot && !strncmp(name, "no-", 3)) slot = invocation_slot(call, name + 3);
    return slot && (slot->option->type == OPTION_FLAG) == !use[length] ? slot : NULL;
}

const ForeignOption *foreign_option(const Invocation *call, const char *name, const char *value) {
    name += strspn(name, "-");
    for (const ForeignOption *row = foreign_options(); row->name; row++)
        if (same_name(name, value, row->name) && (!row->use || slot_of(call, row->use))) return row;
    return NULL;
}

Status foreign_refuse_option(const Invocation *call, const ForeignOption *row, const char *typed,
                             const char *value) {
    const char *command = call->command->name;
    if (!row->use)
        return USAGE("weft %s has no %s, an option of %s; %s", command, typed, row->tool, row->what);
    char owner[OWNER_SIZE];
    const Option *option = slot_of(call, row->use)->option;
    const char *own = value ? foreign_value(option->name, value) : NULL;
    size_t before = strcspn(row->use, "%");
    bool has_value = row->use[before] == '%';
    return USAGE("weft %s has no %s; use %.*s%s (%s name for %s)", command, typed, (int)before, row->use,
                 !has_value ? ""
                 : own      ? own
                 : value    ? value
                            : option->placeholder,
                 possessive(row->tool, owner), row->what);
}

const ForeignCommand *foreign_command(const char *name) {
    for (const ForeignCommand *row = commands; row->name; row++)
        if (same_name(name, NULL, row->name)) return row;
    return NULL;
}

Status foreign_refuse_command(const ForeignCommand *row) {
    char owner[OWNER_SIZE];
    if (!row->use)
        return USAGE("weft has no command '%s', a command of %s; %s", row->name, row->tool, row->what);
    return USAGE("weft has no command '%s'; use '%s' (%s name for %s)", row->name, row->use,
                 possessive(row->tool, owner), row->what);
}

const char *foreign_value(const char *option, const char *text) {
    for (const ForeignValue *row = values; row->option; row++)
        if (!strcmp(row->option, option) && !strcasecmp(row->value, text)) return row->weft;
    return NULL;
}
