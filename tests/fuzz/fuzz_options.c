/* Fuzzes --config with weft's and DeepSpeed's keys: accepted options are in range, and the options that a run
 * records are accepted again with the same meaning. */
#include "base/memory.h"
#include "cli/train_options.h"
#include "dir.h"

static Status read_options(Invocation **ret_call, const Command *command, const void *text, size_t size) {
    FILE *file = fopen(fuzz_file(), "wb");
    fuzz_require(file && fwrite(text, 1, size, file) == size && fclose(file) == 0);
    char option[] = "--config";
    char *argv[] = {option, fuzz_file()};
    return invocation_new(ret_call, command, 2, argv);
}

static void check_train(const Invocation *call) {
    const Settings *config = &((const TrainArgs *)call->config)->config;
    fuzz_require(config->data.files_count >= 1 && config->data.files[0][0]);
    fuzz_require(config->training.batch >= 1 && config->run.micro_batch >= 0);
    fuzz_require(config->run.micro_batch == 0 || config->training.batch % config->run.micro_batch == 0);
    fuzz_require(config->training.steps >= 1 && config->training.warmup >= -1 &&
                 config->training.min_lr >= 0);
    fuzz_require(config->training.lr > 0 && config->run.optim.eps > 0 && config->run.optim.beta1 < 1 &&
                 config->run.optim.beta2 < 1);
    fuzz_require(config->training.schedule && config->training.warmup_type && config->model.task &&
                 config->data.format);
}

static void check_again(const Invocation *call, const Command *command) {
    CLEANUP(json_decrefp) json_t *written = NULL, *repeated = NULL;
    fuzz_require(fuzz_succeeded(invocation_json(call, &written)));
    CLEANUP(mem_freep) char *text = json_dumps(written, JSON_COMPACT);
    CLEANUP(invocation_freep) Invocation *again = NULL;
    fuzz_require(text && fuzz_succeeded(read_options(&again, command, text, strlen(text))));
    fuzz_require(fuzz_succeeded(invocation_json(again, &repeated)));
    fuzz_require(json_equal(written, repeated));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const Command *const commands[] = {&command_train, &command_bench};
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        CLEANUP(invocation_freep) Invocation *call = NULL;
        if (!fuzz_succeeded(read_options(&call, commands[i], data, size))) continue;
        if (commands[i] == &command_train) check_train(call);
        check_again(call, commands[i]);
    }
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"data\":[\"a\",\"b\"],\"model\":\"gpt2-mini\",\"lr\":3e-4,\"steps\":50,\"micro_batch\":2,"
        "\"batch\":8,"
        "\"shuffle\":false,\"no-next-sentence\":true,\"seed\":18446744073709551615,\"warmup\":null}",
        "{\"data\":\"a\",\"epochs\":0.5,\"warmup-type\":\"log\",\"schedule\":\"linear\",\"task\":\"mlm\","
        "\"dropout\":0.1,"
        "\"threads\":4,\"recompute\":\"block\",\"keep\":0,\"clip\":0,\"labels\":3,\"val-fraction\":0}",
        "{\"data\":\"a\",\"train_batch_size\":32,\"gradient_accumulation_steps\":4,\"gradient_clipping\":0.5,"
        "\"train_micro_batch_size_per_gpu\":\"auto\",\"zero_optimization\":{\"stage\":2,\"overlap_comm\":"
        "true,"
        "\"offload_optimizer\":{\"device\":\"cpu\"}},\"fp16\":{\"enabled\":false},\"bf16\":{\"enabled\":true}"
        "}",
        "{\"data\":\"a\",\"train_micro_batch_size_per_gpu\":3,\"gradient_accumulation_steps\":5,"
        "\"optimizer\":{\"type\":\"AdamW\",\"params\":{\"lr\":3e-5,\"betas\":[0.8,0.95],\"eps\":1e-7,"
        "\"weight_decay\":0.1}},"
        "\"scheduler\":{\"type\":\"WarmupCosineLR\",\"params\":{\"warmup_num_steps\":7,\"total_num_steps\":"
        "70,"
        "\"warmup_type\":\"linear\",\"cos_min_ratio\":0.1,\"warmup_min_ratio\":0}}}",
        "{\"batch\":12,\"train_batch_size\":12,\"steps\":3,\"layers\":2,\"hidden\":16,\"device\":\"cpu\"}",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
