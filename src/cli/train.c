/* weft train: trains a model and writes a run directory. */
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "cli/show.h"
#include "cli/train_options.h"

static Status check(const Invocation *call, const TrainArgs *args) {
    const TrainConfig *config = &args->config;
    char label[LABEL_SIZE];
    if (config->resume && !config->out)
        return USAGE("%s: --out DIR is needed to say which run", invocation_label(call, "resume", label));
    if (config->trace && !config->out)
        return USAGE("%s: --out DIR is needed, where trace.json goes",
                     invocation_label(call, "trace", label));
    if (config->min_lr > config->lr)
        return USAGE("%s %g: is above the learning rate of %g", invocation_label(call, "min-lr", label),
                     config->min_lr, config->lr);
    return OK;
}

/* Steps and epochs exclude each other; the stronger source wins, the line over the file. */
static Status settle_length(const Invocation *call, TrainConfig *config, json_t *settings) {
    const Slot *steps = invocation_slot(call, "steps"), *epochs = invocation_slot(call, "epochs");
    char label[LABEL_SIZE];
    if (steps->source == epochs->source && steps->source != SOURCE_DEFAULT)
        return USAGE("%s: steps and epochs both say how long to train; give one of them",
                     invocation_label(call, "epochs", label));
    bool by_epochs = epochs->source > steps->source;
    if (!by_epochs) config->epochs = 0;
    json_object_del(settings, by_epochs ? "steps" : "epochs");
    json_object_del(settings, "resume"); /* of this start, not of the run */
    json_object_del(settings, "trace");
    return OK;
}

/* The newest checkpoint of a run; NULL without one. By the link, where there is one: a checkpoint by its own
 * name is removed in time, and the tokenizer's files would be gone with it. */
static Status find_newest(const char *run, char **ret_dir) {
    CLEANUP(mem_freep) char *checkpoint = NULL, *latest = NULL;
    TRY(ckpt_latest(run, &checkpoint));
    if (!checkpoint) return OK;
    TRY(path_join(&latest, run, "latest"));
    char **found = path_is_dir(latest) ? &latest : &checkpoint;
    *ret_dir = *found;
    *found = NULL;
    return OK;
}

/* A run may outlive the directory that it started from: then its checkpoint, which holds all of the model,
 * stands in for it. *ret_model stays NULL where the model is as it was. */
static Status find_model(const Invocation *call, const TrainConfig *config, char **ret_model) {
    ModelConfig preset;
    if (!config->resume || invocation_slot(call, "model")->source != SOURCE_FILE) return OK;
    if (path_is_dir(config->model) || !path_is_dir(config->out)) return OK;
    CLEANUP(status_freep) Status unknown = config_preset(config->model, &preset);
    return unknown ? find_newest(config->out, ret_model) : OK;
}

/* The same for the tokenizer, whose files every checkpoint carries. */
static Status find_tokenizer(const Invocation *call, const TrainConfig *config, char **ret_tokenizer) {
    const char *named = config->text.tokenizer;
    if (!config->resume || !named || !strcmp(named, "bytes") || path_exists(named)) return OK;
    if (invocation_slot(call, "tokenizer")->source != SOURCE_FILE || !path_is_dir(config->out)) return OK;
    return find_newest(config->out, ret_tokenizer);
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    TrainArgs *args = arguments;
    bool here;
    TRY(check(call, args));
    TRY(layout_enter(call, args, true, &here));
    if (!here) return OK;
    TrainConfig config = args->config; /* as this start runs it */
    CLEANUP(json_decrefp) json_t *settings = NULL;
    TRY(invocation_json(call, &settings));
    TRY(settle_length(call, &config, settings));
    CLEANUP(mem_freep) char *model = NULL, *tokenizer = NULL;
    TRY(find_model(call, &config, &model));
    if (model) config.model = model;
    TRY(find_tokenizer(call, &config, &tokenizer));
    if (tokenizer) config.text.tokenizer = tokenizer;
    config.stop = stop_catch();
    config.log = stderr;
    TRY(train_run(&config, settings, ret_result));
    call->incomplete = json_is_true(json_object_get(*ret_result, "interrupted"));
    if (call->incomplete && call->world->rank == 0)
        fprintf(stderr, "weft: stopped after step %lld%s\n", (long long)show_int(*ret_result, "steps"),
                config.out ? "; --resume goes on from there" : "");
    return OK;
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const TrainArgs *args = call->config;
    char text[FORMAT_SIZE];
    double number;
    fprintf(out, "%lld steps", (long long)show_int(result, "steps"));
    if (show_number(result, "runtime_s", &number)) fprintf(out, " in %s", format_duration(text, number));
    if (show_number(result, "tokens_per_s", &number))
        fprintf(out, ", %s tokens/s", format_count(text, number));
    if (show_number(show_rank_peak(result), "total", &number))
        fprintf(out, ", %s of memory at most", format_bytes(text, number));
    fputc('\n', out);
    if (show_number(result, "loss_first", &number)) fprintf(out, "loss %.4f", number);
    if (show_number(result, "loss_last", &number)) fprintf(out, " to %.4f", number);
    if (show_number(result, "val_loss", &number)) fprintf(out, ", validation loss %.4f", number);
    fputc('\n', out);
    if (show_number(result, "utilization", &number)) {
        fprintf(out, "busy %.1f%% of the time", 100 * number);
        if (show_number(result, "mfu", &number))
            fprintf(out, ", at %.1f%% of the machine's peak", 100 * number);
        if (show_number(result, "noise_scale", &number))
            fprintf(out, "; gradient noise scale %.3g samples", number);
        fputc('\n', out);
    }
    if (show_number(result, "bubble", &number) && number > 0)
        fprintf(out, "stages waited for each other %.1f%% of forward and backward\n", 100 * number);
    if (args->config.out)
        fprintf(out, "the run is in %s; its newest checkpoint is %s/latest\n", args->config.out,
                args->config.out);
    return OK;
}

static const Example examples[] = {
    {"Watch a small GPT-2 learn weft's own source, as bytes",
     "weft train --data self --steps 200 --out runs/first"},
    {"Go on with a run that was stopped", "weft train --out runs/first --resume"},
    {"Train a Hugging Face checkpoint on with one's own tokens",
     "weft train --model path/to/gpt2 --data tokens.u16 --lr 3e-5 --batch 16 --micro-batch 4 --out "
     "runs/mine"},
    {"Take the settings from a file", "weft train --config run.json --lr 1e-4"},
};

const Command command_train = {
    .name = "train",
    .summary = "train a model, from nothing or from a checkpoint",
    .description =
        "Every checkpoint of a run is a Hugging Face directory that transformers loads as it is. A run that "
        "was "
        "stopped, by Ctrl-C or a power cut, goes on with --resume as if it had never stopped.\n\n"
        "A configuration file may use DeepSpeed's keys for batch sizes, optimizer, scheduler, clipping and "
        "precision.",
    .config_size = sizeof(TrainArgs),
    .groups = train_groups,
    .group_count = TRAIN_GROUPS,
    .examples = examples,
    .example_count = COUNT_OF(examples),
    .deepspeed = true,
    .resumes = true,
    .run = run,
    .show = show,
};
