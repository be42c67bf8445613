/* Names: suggestions for mistyped options, other tools' names, operands that stand for
 * options, and warnings about options without effect. */
#include "program.h"

#include <ctype.h>

#include "base/fs.h"
#include "base/suggest.h"
#include "cli/foreign.h"
#include "cli/invocation.h"
#include "cli/train_options.h"
#include "data/released.h"

static Status read_words(Invocation **ret_call, const Command *command, const char *const *words) {
    int count = 0;
    while (words[count]) count++;
    return invocation_new(ret_call, command, count, (char **)(uintptr_t)words);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

/* ---- suggestions, over every option of every command ---- */

static const char *suggest_option(const Command *command, const char *word) {
    Suggestion near = {.word = word};
    const OptionGroup *group;
    for (size_t g = 0; (group = command_group(command, g)); g++)
        for (size_t i = 0; i < group->count; i++) suggest_offer(&near, group->options[i].name);
    return near.best;
}

static void assert_near(const Command *command, const char *word) {
    const char *found = suggest_option(command, word);
    if (!found) fail_msg("weft %s: no suggestion for --%s", command->name, word);
    if (suggest_distance(word, found) > 1)
        fail_msg("weft %s: --%s suggests --%s", command->name, word, found);
}

/* A name with one letter missing, doubled or swapped is recognized. */
static void check_typos(const Command *command, const char *name) {
    char word[80];
    size_t length = strlen(name);
    if (length < 4) return;
    for (size_t i = 0; i < length; i++) {
        if (isdigit((unsigned char)name[i])) continue;
        snprintf(word, sizeof word, "%.*s%s", (int)i, name, name + i + 1);
        assert_near(command, word);
        snprintf(word, sizeof word, "%.*s%c%s", (int)i, name, name[i], name + i);
        assert_near(command, word);
        if (i + 1 == length || isdigit((unsigned char)name[i + 1])) continue;
        snprintf(word, sizeof word, "%s", name);
        word[i] = name[i + 1];
        word[i + 1] = name[i];
        assert_near(command, word);
    }
}

static void typos_of_every_option(void **state) {
    const OptionGroup *group;
    for (const Command *const *command = commands_all(); *command; command++)
        for (size_t g = 0; (group = command_group(*command, g)); g++)
            for (size_t i = 0; i < group->count; i++) check_typos(*command, group->options[i].name);
}

/* Options that weft does not have, and that only look like some of its own, get no suggestion anywhere. */
static void unrelated_names(void **state) {
    static const char *const words[] = {"cp",       "ep",
                                        "sp",       "vp",
                                        "gpu-ids",  "rope-theta",
                                        "galore",   "num-experts",
                                        "moe",      "neftune",
                                        "ema",      "wd",
                                        "momentum", "nesterov",
                                        "warp",     "port",
                                        "host",     "beta3",
                                        "token",    "password",
                                        "user",     "streaming-multipack",
                                        "grpo",     "peft",
                                        "adapter"};
    for (const Command *const *command = commands_all(); *command; command++)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            const char *found = suggest_option(*command, words[i]);
            if (found && strncmp(found, words[i], strlen(words[i])))
                fail_msg("weft %s: --%s suggests --%s", (*command)->name, words[i], found);
        }
}

/* ---- other tools' names ---- */

static const Option *first_option(const Command *command, const char *use) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(use + 2, " "), use + 2);
    const Option *option = command_option(command, name);
    return option || strncmp(name, "no-", 3) ? option : command_option(command, name + 3);
}

/* Each row leads to an option that exists, and to a fixed value that it accepts. A name is not one of weft's
 * own in every command that the row is for. */
static void check_option(const ForeignRow *row, const char *name) {
    size_t found = 0, own = 0;
    assert_true(!strchr(name, '_') && name[0] != '-');
    for (const Command *const *command = commands_all(); *command; command++) {
        const Option *option = first_option(*command, row->use);
        if (!option || (option->type == OPTION_FLAG) != !strchr(row->use, ' ')) continue;
        found++;
        own += command_option(*command, name) != NULL;
        const char *value = strchr(row->use, ' ');
        if (!value || option->type != OPTION_CHOICE || !strcmp(value, " %")) continue;
        const char *field;
        assert_ok(option_set_text(option, &field, name, value + 1));
    }
    if (found == own) fail_msg("--%s: no command uses the row with %s", name, row->use);
}

static void check_command(const ForeignRow *row, const char *name) {
    const Command *command;
    size_t used;
    char first[32] = "", second[32] = "";
    if (row->use) assert_true(sscanf(row->use, "weft %31s %31s", first, second) >= 1);
    const char *words[] = {first, second};
    if (row->use) assert_ok(command_find(words, *second ? 2 : 1, &command, &used));
    for (const Command *const *at = commands_all(); *at; at++) assert_string_not_equal((*at)->name, name);
}

static void check_value(const ForeignRow *row, const char *name) {
    bool accepted = false;
    const char *value = strchr(row->use, ' ') + 1;
    for (const Command *const *command = commands_all(); *command; command++) {
        const Option *option = first_option(*command, row->use);
        for (const char *const *choice = option ? option->choices : NULL; choice && *choice; choice++)
            accepted |= !strcmp(*choice, value);
        accepted |= option && option->type == OPTION_TEXT;
    }
    if (!accepted) fail_msg("%s: %s is not a choice", name, row->use);
}

static void foreign_rows_lead_somewhere(void **state) {
    (void)state;
    for (ForeignKind kind = FOREIGN_OPTION; kind <= FOREIGN_VALUE; kind++)
        for (const ForeignRow *row = foreign_rows(kind); row->names; row++) {
            Foreign at = {.row = row, .rest = row->names};
            while (foreign_next(&at)) {
                assert_true(row->what && (kind == FOREIGN_VALUE || (*row->what && *at.tool)));
                if (kind == FOREIGN_OPTION && row->use) check_option(row, at.name);
                if (kind == FOREIGN_COMMAND) check_command(row, at.name);
                if (kind == FOREIGN_VALUE) check_value(row, at.name);
            }
            assert_true(*at.name == 0 && *at.rest == 0);
        }
}

static void foreign_names(void **state) {
    static const struct {
        const Command *command;
        const char *words[3], *message;
    } cases[] = {
        {&command_train,
         {"--block-size", "1024"},
         "weft train has no --block-size; use --seq 1024 (nanoGPT's name for the sequence length)"},
        {&command_train, {"--block_size=512"}, "weft train has no --block_size; use --seq 512 (nanoGPT's"},
        {&command_train,
         {"--learning-rate", "3e-4"},
         "use --lr 3e-4 (transformers' name for the learning rate)"},
        {&command_train, {"--learning_rate", "--steps"}, "use --lr X ("},
        {&command_train, {"--max-iters=5000"}, "use --steps 5000 ("},
        {&command_train, {"--dtype", "bfloat16"}, "use --precision bf16 ("},
        {&command_train, {"--dtype=float32"}, "use --precision fp32 ("},
        {&command_train, {"--bf16"}, "use --precision bf16 ("},
        {&command_train, {"--global-batch-size", "64"}, "use --batch 64 ("},
        {&command_train, {"--tensor-model-parallel-size", "8"}, "use --tp 8 (Megatron-LM's"},
        {&command_plan, {"--pipeline-model-parallel-size=4"}, "weft plan has no"},
        {&command_plan, {"--pipeline-model-parallel-size=4"}, "use --pp 4 ("},
        {&command_train,
         {"--include", "hosts"},
         "an option of DeepSpeed; to use several hosts, pass --ranks and --hosts"},
        {&command_train, {"--n_layer=12"}, "use --layers 12 ("},
        {&command_train, {"--num-layers", "24"}, "use --layers 24 ("},
        {&command_train, {"--hidden-size", "64"}, "use --hidden 64 ("},
        {&command_train, {"--num-attention-heads", "16"}, "use --heads 16 ("},
        {&command_train, {"--num-experts", "8"}, "use --experts 8 (Megatron-LM's"},
        {&command_train, {"--moe-router-topk=2"}, "use --top-k 2 ("},
        {&command_train, {"--moe-expert-capacity-factor", "1.5"}, "drops none"},
        {&command_train,
         {"--nproc_per_node=4"},
         "use --ranks 4 (torchrun's name for the number of processes)"},
        {&command_train, {"--lr-scheduler-type", "constant_with_warmup"}, "use --schedule constant ("},
        {&command_train, {"--init_from=resume"}, "use --resume (nanoGPT's"},
        {&command_train, {"--init_from=gpt2-xl"}, "use --model gpt2-xl (nanoGPT's"},
        {&command_train, {"--decay_lr=False"}, "use --schedule constant ("},
        {&command_train, {"--gradient_accumulation_steps=8"}, "use --batch N ("},
        {&command_train, {"--deepspeed", "ds.json"}, "use --config ds.json ("},
        {&command_generate,
         {"--max_new_tokens", "50"},
         "weft generate has no --max_new_tokens; use --max-tokens 50"},
        {&command_generate, {"-n", "50"}, "weft generate has no -n; use --max-tokens 50 (llama.cpp's"},
        {&command_train, {"-n", "4"}, "weft train has no -n; use --ranks 4 (mpirun's"},
        {&command_generate, {"--dtype=float16"}, "use --precision fp16 ("},
        {&command_convert,
         {"--dtype=bfloat16"},
         "--dtype bfloat16: expected same, fp32, bf16, fp16, q8_0 or q4_0; did you mean 'bf16'?"},
        {&command_train, {"--device", "gpu"}, "--device gpu: expected cpu or cuda; did you mean 'cuda'?"},
        {&command_train, {"--compile=False"}, "weft train has no --compile, an option of nanoGPT;"},
        {&command_train, {"--optim=adamw_torch"}, "use --optimizer adamw (transformers'"},
        {&command_train, {"--optimizer", "adam"}, "did you mean 'adamw'?"},
        {&command_train, {"--bias=False"}, "an option of nanoGPT; the model's family determines it"},
        {&command_train, {"--qlora"}, "weft train has no --qlora; use --lora RANK (PEFT's"},
        {&command_train, {"--lora_r", "8"}, "weft train has no --lora_r; use --lora 8 (PEFT's"},
        {&command_train, {"--hub_strategy=end"}, "weft uploads nothing"},
        {&command_train, {"--label-smoothing-factor", "0.1"}, "weft has no label smoothing"},
        {&command_train, {"--log_on_each_node"}, "an option of transformers that would have no effect"},
        {&command_train, {"--host", "a,b"}, "--host: unknown option; did you mean --hosts?"},
        {&command_generate, {"--host", "::"}, "an option of llama.cpp; weft has no server"},
        {&command_generate,
         {"--conversation"},
         "weft generate has no --conversation; use --chat (llama.cpp's"},
        {&command_report,
         {"--watch", "x"},
         "weft report has no --watch; use --serve (earlier weft's name for following runs)"},
        {&command_generate, {"--draft-model", "x"}, "weft has no speculative decoding"},
        /* An option that is not for this command gets the ordinary answer. */
        {&command_fetch, {"--block-size", "8"}, "--block-size: unknown option; 'weft help fetch' lists"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Invocation *call = NULL;
        assert_fails(read_words(&call, cases[i].command, cases[i].words), 2, cases[i].message);
    }
    assert_refused(2,
                   "weft has no command 'sample'; use 'weft generate' (nanoGPT's name for generating text)",
                   "sample", "--start", "x");
    assert_refused(2, "weft has no command 'chat'; use 'weft generate --interactive --chat'", "chat");
    assert_refused(2, "weft has no command 'pretrain'; use 'weft train'", "pretrain", "book.txt");
    assert_refused(2, "use 'weft train --model DIR'", "finetune");
    assert_refused(2, "use 'weft train --model DIR'", "help", "finetune");
}

/* Common options of other tools never get a bare "unknown option". */
static void foreign_tools_are_known(void **state) {
    static const char *const train[] = {"use_peft",
                                        "wandb",
                                        "wandb-entity",
                                        "load_in_4bit",
                                        "dpo_beta",
                                        "sample_packing",
                                        "base_model",
                                        "gradient_accumulation",
                                        "torch_compile_mode",
                                        "ddp_backend",
                                        "fsdp_config",
                                        "push_to_hub",
                                        "metric_for_best_model",
                                        "dataloader_pin_memory",
                                        "trust_remote_code",
                                        "neftune_noise_alpha",
                                        "data_seed",
                                        "save_strategy",
                                        "logging_strategy",
                                        "skip_memory_metrics",
                                        "rdzv_conf",
                                        "tee",
                                        "swiglu",
                                        "num-query-groups",
                                        "expert-model-parallel-size",
                                        "exit-signal-handler",
                                        "no-load-optim",
                                        "tp-comm-overlap",
                                        "grad-reduce-in-bf16",
                                        "ckpt-format",
                                        "no_ssh",
                                        "exclude",
                                        "elastic_training",
                                        "wall_clock_breakdown",
                                        "zero_optimization",
                                        "use-flash-attention-2",
                                        "n-layers",
                                        "num-experts",
                                        "rope-scaling",
                                        "early-stopping-patience"};
    static const char *const generate[] = {"lora",           "model-draft",      "chat-template-kwargs",
                                           "system-prompt",  "grammar-file",     "mirostat",
                                           "dry-multiplier", "presence-penalty", "xtc-probability",
                                           "prompt-cache",   "hf-repo",          "mmproj",
                                           "port",           "no-mmap",          "threads-batch",
                                           "cont-batching",  "rope-freq-base",   "tensor-split",
                                           "assistant-model"};
    for (size_t i = 0; i < COUNT_OF(train) + COUNT_OF(generate); i++) {
        bool first = i < COUNT_OF(train);
        const char *name = first ? train[i] : generate[i - COUNT_OF(train)];
        char word[64];
        Invocation *call = NULL;
        snprintf(word, sizeof word, "--%s=x", name);
        Status status = read_words(&call, first ? &command_train : &command_generate, WORDS(word));
        assert_non_null(status);
        if (strstr(status_message(status), "unknown option")) fail_msg("%s", status_message(status));
        status_free(status);
    }
}

/* Files that weft does not read are named. */
static void foreign_files(void **state) {
    char dir[] = "/tmp/weft-names-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    assert_ok(file_replace(path, "lora_r: 8\n", 10));
    assert_refused(2, "config.yaml is a YAML file; weft reads JSON", "train", "--config", path);
    assert_refused(2, "config.yaml is a YAML file; weft reads JSON", "compare", path);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_ok(file_replace(path, "{\"lora_r\": 8}", 13));
    assert_refused(2, "unknown key 'lora_r'; use ", "train", "--config", path);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    assert_ok(file_replace(path, "{}", 2));
    assert_refused(1, "is an adapter of the model that it does not name, which is not a directory",
                   "generate", dir, "x");
    assert_ok(file_replace(path, "{\"base_model_name_or_path\": \"org/name\"}", 39));
    assert_refused(1, "is an adapter of the model org/name, which is not a directory here; give", "info",
                   dir);
    assert_ok(dir_remove(dir));
}

/* ---- operands ---- */

static const char *text_of(const Invocation *call, const char *name) {
    return *(const char *const *)invocation_slot(call, name)->field;
}

static const char *entry_of(const Invocation *call, const char *name, int index) {
    const Slot *slot = invocation_slot(call, name);
    return index < *slot->count ? (*(const char *const *const *)slot->field)[index] : NULL;
}

static void operands_set_options(void **state) {
    Invocation *call = NULL;
    assert_ok(read_words(&call, &command_train, WORDS("a.txt", "b.txt", "--steps", "5")));
    assert_string_equal(entry_of(call, "data", 0), "a.txt");
    assert_string_equal(entry_of(call, "data", 1), "b.txt");
    assert_null(entry_of(call, "data", 2));
    assert_true(invocation_given(call, "data") && call->operand_count == 0);
    invocation_free(call);

    assert_ok(read_words(&call, &command_generate, WORDS("runs/book", "Once upon", "--greedy")));
    assert_string_equal(text_of(call, "model"), "runs/book");
    assert_string_equal(entry_of(call, "prompt", 0), "Once upon");
    invocation_free(call);

    assert_ok(read_words(&call, &command_eval, WORDS("runs/book", "book.txt")));
    assert_string_equal(text_of(call, "model"), "runs/book");
    assert_string_equal(entry_of(call, "data", 0), "book.txt");
    invocation_free(call);

    /* --model is optional here, --data is not: one operand is the data. */
    assert_ok(read_words(&call, &command_eval, WORDS("dev.json", "--predictions", "p.json")));
    assert_null(text_of(call, "model"));
    assert_string_equal(entry_of(call, "data", 0), "dev.json");
    invocation_free(call);

    /* An option given by name is skipped, wherever it stands. */
    assert_ok(read_words(&call, &command_eval, WORDS("book.txt", "--model", "runs/book")));
    assert_string_equal(text_of(call, "model"), "runs/book");
    assert_string_equal(entry_of(call, "data", 0), "book.txt");
    invocation_free(call);

    assert_ok(read_words(&call, &command_answer, WORDS("runs/squad", "-", "Who?", "When?")));
    assert_string_equal(text_of(call, "context"), "-");
    assert_string_equal(entry_of(call, "question", 1), "When?");
    invocation_free(call);

    assert_ok(read_words(&call, &command_plan, WORDS("gpt2-medium", "curves.svg", "--sweep", "1,2")));
    assert_string_equal(text_of(call, "model"), "gpt2-medium");
    assert_int_equal(call->operand_count, 1);
    assert_string_equal(call->operands[0], "curves.svg");
    invocation_free(call);

    assert_ok(read_words(&call, &command_train, WORDS("--", "--strange.txt")));
    assert_string_equal(entry_of(call, "data", 0), "--strange.txt");
    invocation_free(call);
}

/* An option that the configuration file sets takes an operand only if no other option has room for it. */
static void operands_with_a_file(void **state) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/weft-names-%d.json", (int)getpid());
    assert_ok(file_replace(path, "{\"model\": \"runs/book\"}", 22));
    Invocation *call = NULL;
    assert_ok(read_words(&call, &command_generate, WORDS("--config", path, "Once upon")));
    assert_string_equal(text_of(call, "model"), "runs/book");
    assert_string_equal(entry_of(call, "prompt", 0), "Once upon");
    invocation_free(call);
    assert_ok(read_words(&call, &command_eval, WORDS("a.txt", "b.txt", "--config", path)));
    assert_string_equal(text_of(call, "model"), "runs/book");
    assert_string_equal(entry_of(call, "data", 1), "b.txt");
    invocation_free(call);
    assert_ok(read_words(&call, &command_convert, WORDS("--config", path, "other", "out")));
    assert_string_equal(text_of(call, "model"), "other");
    assert_string_equal(text_of(call, "out"), "out");
    invocation_free(call);
    assert_ok(file_replace(path, "{\"data\": [\"a.txt\"]}", 19));
    assert_ok(read_words(&call, &command_train, WORDS("b.txt", "--config", path)));
    assert_string_equal(entry_of(call, "data", 0), "b.txt");
    assert_null(entry_of(call, "data", 1));
    invocation_free(call);
    unlink(path);
}

static void operands_that_conflict(void **state) {
    Invocation *call = NULL;
    assert_fails(read_words(&call, &command_train, WORDS("a.txt", "--data", "b.txt")), 2,
                 "'a.txt': --data is also given; use either the operand or the option");
    assert_fails(read_words(&call, &command_generate, WORDS("runs/book", "Once", "--prompt", "Twice")), 2,
                 "'Once': --prompt is also given");
    assert_fails(read_words(&call, &command_convert, WORDS("a", "b", "c")), 2,
                 "'c': too many operands; usage: weft convert MODEL OUT [OPTION]...");
    assert_fails(read_words(&call, &command_convert, WORDS("a")), 2, "--out DIR is required");
    assert_fails(read_words(&call, &command_train, WORDS("--val", "v.txt", "book.txt")), 2,
                 "--data FILE is required; --val took 'book.txt', so put operands before it");
    assert_fails(read_words(&call, &command_bench, WORDS("gpt2", "--model", "bert-base")), 2,
                 "'gpt2': --model is also given");
    assert_null(call);
}

/* Every command's operands name options of its own, and help shows them. */
static void operands_are_documented(void **state) {
    for (const Command *const *command = commands_all(); *command; command++)
        for (const char *const *name = (*command)->positional; name && *name; name++) {
            const Option *option = command_option(*command, *name);
            assert_non_null(option);
            assert_true(option->type == OPTION_TEXT || option->type == OPTION_LIST);
            /* a list takes all that are left */
            assert_true(option->type == OPTION_TEXT || !name[1]);
        }
    Ran help = program_run("help", "eval"), man = program_run("help", "--man");
    assert_contains(help.out, "Usage: weft eval [MODEL] DATA... [OPTION]...\n"
                              "The operands stand for --model and --data.\n");
    assert_contains(man.out, ".SS weft convert MODEL OUT [OPTION]...");
    assert_contains(man.out, "The operands stand for \\-\\-model and \\-\\-out.");
    assert_contains(man.out, "\n\\fB\\-i\\fR, \\fB\\-\\-interactive\\fR\n");
    ran_done(&help);
    ran_done(&man);
    help = program_run("help", "generate");
    assert_contains(help.out, "\n  -i, --interactive       Read prompts");
    ran_done(&help);
    help = program_run("help", "prune");
    assert_contains(help.out, "Usage: weft prune MODEL OUT --amount X [OPTION]...");
    ran_done(&help);
}

/* ---- options without effect ---- */

static void expect_warnings(const Command *command, const char *const *words, const char *const *expected) {
    Invocation *call = NULL;
    assert_ok(read_words(&call, command, words));
    size_t count = 0;
    while (expected[count]) count++;
    for (size_t i = 0; i < call->warning_count; i++)
        if (i >= count || strcmp(call->warnings[i], expected[i]))
            fail_msg("unexpected warning: %s", call->warnings[i]);
    assert_int_equal(call->warning_count, count);
    invocation_free(call);
}

static void options_without_effect(void **state) {
    const Command *train = &command_train;
    expect_warnings(train, WORDS("x", "--steps", "5", "--lr", "1"), WORDS());
    expect_warnings(train, WORDS("x", "--zero-keep"), WORDS("--zero-keep has no effect without --zero 3"));
    expect_warnings(train, WORDS("x", "--zero", "3", "--zero-keep", "--ranks", "2"), WORDS());
    expect_warnings(train, WORDS("x", "--zero", "1", "--ranks", "2", "--tp", "2"),
                    WORDS("--zero has no effect with a single replica; use more --ranks"));
    expect_warnings(train, WORDS("x", "--zero", "1", "--grad-dtype", "bf16", "--cp", "2"), WORDS());
    expect_warnings(train, WORDS("x", "--zero", "0", "--no-zero-keep", "--no-sequence-parallel"), WORDS());
    expect_warnings(train, WORDS("x", "--loss-scale", "8", "--precision", "bf16", "--sequence-parallel"),
                    WORDS("--sequence-parallel has no effect without --tp 2 or more",
                          "--loss-scale has no effect without --precision fp16"));
    expect_warnings(train, WORDS("x", "--loss-scale", "8", "--precision", "fp16"), WORDS());
    /* The task follows from the model: GPT-2 never masks tokens, BERT does. */
    expect_warnings(train, WORDS("x", "--whole-word-masking"),
                    WORDS("--whole-word-masking has no effect without --task mlm"));
    expect_warnings(train, WORDS("x", "--whole-word-masking", "--model", "bert-tiny"), WORDS());
    expect_warnings(train, WORDS("x", "--no-next-sentence", "--model", WEFT_TEST_DIR "/golden/cases/gpt2"),
                    WORDS("--no-next-sentence has no effect without --task mlm"));
    expect_warnings(train, WORDS("x", "--mask-rate", "0.2", "--model", "bert-tiny", "--task", "squad"),
                    WORDS("--mask-rate has no effect without --task mlm"));
    expect_warnings(train, WORDS("x", "--val", "y", "--val-fraction", "0.2", "--keep", "3"),
                    WORDS("--val-fraction has no effect with --val", "--keep has no effect without --out"));
    expect_warnings(
        train,
        WORDS("x", "--min-lr", "1e-5", "--schedule", "constant", "--warmup", "0", "--warmup-type", "log"),
        WORDS("--warmup-type has no effect with --warmup 0",
              "--min-lr has no effect with --schedule constant"));
    expect_warnings(&command_plan, WORDS("--sweep", "1,2", "--zero", "1"), WORDS());
    expect_warnings(&command_bench, WORDS("--new-tokens", "5"),
                    WORDS("--new-tokens has no effect without --leaderboard"));
    expect_warnings(&command_generate, WORDS("m", "--greedy", "--top-k", "5"),
                    WORDS("--top-k has no effect with --greedy"));
    expect_warnings(&command_prepare, WORDS("x", "--out", "y", "--max-query", "5"),
                    WORDS("--max-query has no effect without --format squad"));
    expect_warnings(&command_prepare, WORDS("x.txt", "--out", "y", "--field", "z"),
                    WORDS("--field has no effect on plain text"));
    expect_warnings(&command_prepare, WORDS("x.jsonl.gz", "--out", "y", "--documents", "line"),
                    WORDS("--documents has no effect on JSON Lines"));
    expect_warnings(&command_prepare,
                    WORDS("x.txt", "y.jsonl", "--out", "y", "--documents", "line", "--field", "z"), WORDS());
    expect_warnings(&command_prepare,
                    WORDS("x.txt", "--out", "y", "--format", "squad", "--documents", "line", "--field", "z"),
                    WORDS("--field has no effect without --format text",
                          "--documents has no effect without --format text"));
    expect_warnings(train, WORDS("x", "--documents", "line", "--field", "z"), WORDS());
    expect_warnings(&command_plan, WORDS("gpt2", "--price", "3"),
                    WORDS("--price has no effect without --cluster"));
    expect_warnings(&command_report, WORDS("x", "--interval", "5"),
                    WORDS("--interval has no effect without --serve"));
    expect_warnings(&command_report, WORDS("x", "--interval", "5", "--serve"), WORDS());
}

/* Each option of a row is one of some command, which has the other one, with the values of the row. */
static void check_effect(const Effect *row, const char *name) {
    bool found = false;
    for (const Command *const *command = commands_all(); *command; command++) {
        if (row->command && strcmp(row->command, (*command)->name)) continue;
        const Option *other = command_option(*command, row->other);
        if (!other || !command_option(*command, name)) continue;
        found = true;
        if (other->type != OPTION_CHOICE) continue;
        char values[128], *rest = NULL;
        snprintf(values, sizeof values, "%s", row->values + (*row->values == '!'));
        for (char *value = strtok_r(values, "|", &rest); value; value = strtok_r(NULL, "|", &rest)) {
            const char *field;
            if (strcmp(value, "auto-lm")) assert_ok(option_set_text(other, &field, name, value));
        }
    }
    if (!found) fail_msg("no command has --%s and --%s", name, row->other);
}

static void effects_name_real_options(void **state) {
    (void)state;
    for (const Effect *row = effects_all(); row->options; row++) {
        char names[EFFECT_OPTIONS], *rest = NULL;
        assert_true(strlen(row->options) < sizeof names);
        snprintf(names, sizeof names, "%s", row->options);
        for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
            check_effect(row, name);
    }
}

/* Warnings go to standard error, once. */
static void warnings_are_printed(void **state) {
    Ran ran = program_run("plan", "gpt2-tiny", "--zero-keep", "--json");
    assert_int_equal(ran.code, 0);
    assert_string_equal(ran.err, "weft: warning: --zero-keep has no effect without --zero 3\n");
    assert_int_equal(ran.out[0], '{');
    ran_done(&ran);
}

/* Models by the names that others give them: what to do instead of "no such directory". */
static void published_models(void **state) {
    static const char *const rows[][2] = {
        {"meta-llama/Llama-2-7b-hf", "no such directory; for released weights, download them and pass their "
                                     "directory; the preset llama-2-7b has"},
        {"llama2", "the preset llama-2-7b has the sizes of a similar model, with random weights"},
        {"meta-llama/Meta-Llama-3-8B", "the preset llama-3-8b has"},
        {"Qwen/Qwen2.5-0.5B-Instruct", "download them and pass their directory; the preset qwen2.5-0.5b has"},
        {"openai-community/gpt2-medium", "run 'weft fetch gpt2-medium' and pass @gpt2-medium; the preset "
                                         "gpt2-medium has the same sizes"},
        {"bert-base-uncased", "run 'weft fetch bert-base-uncased' and pass @bert-base-uncased"},
        {"qwen/qwen3-0.6B", "run 'weft fetch qwen3-0.6b' and pass @qwen3-0.6b"},
        {"gp2", "did you mean 'gpt2'?"},
        {"gpt3", "did you mean gpt2, "},
        {"Llama-3.1-8B", "did you mean llama-3-8b, llama-3.2-1b or "},
        {"qwen", "did you mean qwen3-8b, "},
        {"mistral7b", "did you mean mistral-7b or mistral-5m?"},
        {"phi", "presets include gpt2, bert-base, llama-1m, mistral-5m, qwen2.5-0.5b, qwen3-0.6b, moe-1m, "
                "qwen1.5-moe-a2.7b, moe-1b, olmoe-1b-7b\n"},
        {"meta-llama/Llama-3.1-8B", "directory; similar presets, with random weights: llama-3-8b, "},
        {"https://hub.example/gpt2", "expected a checkpoint directory or a preset; for the released weights, "
                                     "run 'weft fetch gpt2' and pass @gpt2; the preset gpt2 has the same"},
        {"https://hub.example/meta-llama/Llama-2-7b/tree/main", "the preset llama-2-7b has the sizes"},
        {WEFT_BINARY, "not a directory; expected a checkpoint directory or a preset"},
        {"./gpt2", "'./gpt2': no such directory"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) assert_refused(2, rows[i][1], "plan", "--model", rows[i][0]);
    assert_refused(1,
                   "gpt2: no such directory; expected a checkpoint directory; for the released weights, run "
                   "'weft fetch gpt2' and pass @gpt2",
                   "generate", "--model", "gpt2", "--prompt", "x");
    assert_refused(1,
                   "bert-base: does not exist; for the released weights, run 'weft fetch bert-base-uncased'",
                   "info", "bert-base");
    assert_refused(2, "pass their directory", "fetch", "meta-llama/Llama-2-7b");
    assert_refused(1, "; for the released weights, run 'weft fetch gpt2'", "generate", "--model",
                   "https://hub.example/openai-community/gpt2/", "--prompt", "x");
    char name[RELEASED_NAME];
    assert_true(released_from_url("https://hub.example/a/b?x=1", name));
    assert_string_equal(name, "a/b");
    assert_false(released_from_url("https://hub.example/", name));
    assert_false(released_from_url("a/b", name));
    const FetchSet *set = NULL;
    assert_ok(fetch_find("https://hub.example/openai-community/gpt2", &set));
    assert_string_equal(set->name, "gpt2");
    assert_ok(fetch_find("openai-community/gpt2", &set));
    assert_string_equal(set->name, "gpt2");
    assert_null(released_set("gpt2-tiny"));
}

/* A preset has random weights, which training says at its start; a resumed run has its own. */
static void random_weights_are_announced(void **state) {
    char dir[] = "/tmp/weft-names-XXXXXX", data[64], out[64];
    assert_non_null(mkdtemp(dir));
    snprintf(data, sizeof data, "%s/data.txt", dir);
    snprintf(out, sizeof out, "%s/run", dir);
    char text[301] = "";
    memset(text, 'a', 300);
    assert_ok(file_replace(data, text, 300));
    Ran ran = program_run("train", data, "--model", "gpt2-tiny", "--seq", "8", "--steps", "1", "--out", out);
    assert_contains(ran.err, " parameters, initialized at random; task ");
    assert_null(strstr(ran.err, "released weights"));
    assert_int_equal(ran.code, 0);
    ran_done(&ran);
    ran = program_run("train", "--out", out, "--resume", "--steps", "2");
    assert_null(strstr(ran.err, "at random"));
    ran_done(&ran);
    ran = program_run("train", data, "--model", "gpt2", "--seq", "8", "--steps", "1", "--batch", "1");
    assert_contains(ran.err, "for the released weights of gpt2: weft fetch gpt2, then --model @gpt2");
    ran_done(&ran);
    assert_ok(dir_remove(dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(typos_of_every_option),        cmocka_unit_test(unrelated_names),
        cmocka_unit_test(foreign_rows_lead_somewhere),  cmocka_unit_test(foreign_names),
        cmocka_unit_test(foreign_tools_are_known),      cmocka_unit_test(foreign_files),
        cmocka_unit_test(operands_set_options),         cmocka_unit_test(operands_with_a_file),
        cmocka_unit_test(operands_that_conflict),       cmocka_unit_test(operands_are_documented),
        cmocka_unit_test(options_without_effect),       cmocka_unit_test(effects_name_real_options),
        cmocka_unit_test(warnings_are_printed),         cmocka_unit_test(published_models),
        cmocka_unit_test(random_weights_are_announced),
    };
    return cmocka_run_group_tests(tests, program_setup, NULL);
}
