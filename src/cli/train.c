/* weft train: trains a model and writes a run directory. */
#include <math.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "checkpoint/checkpoint.h"
#include "cli/hosts.h"
#include "cli/launch.h"
#include "cli/show.h"
#include "cli/train_options.h"
#include "comm/mpi.h"
#include "infer/engine.h"
#include "infer/text.h"
#include "report/results.h"
#include "train/job.h"

static Status check(const Invocation *call, const TrainArgs *args) {
    const Settings *config = &args->config;
    char label[LABEL_SIZE];
    if (config->ckpt.resume && !config->ckpt.out)
        return USAGE("%s requires --out DIR, the run to continue", invocation_label(call, "resume", label));
    if (config->fault.max_restarts && !config->ckpt.out)
        return USAGE("%s requires --out DIR, where checkpoints are",
                     invocation_label(call, "max-restarts", label));
    if (config->report.trace && !config->ckpt.out)
        return USAGE("%s requires --out DIR, where trace.json is written",
                     invocation_label(call, "trace", label));
    return OK;
}

Status train_settle(const Invocation *call, Settings *config, json_t *settings) {
    const Slot *steps = invocation_slot(call, "steps"), *epochs = invocation_slot(call, "epochs");
    char label[LABEL_SIZE];
    if (config->training.min_lr > config->training.lr)
        return USAGE("%s %g: must not exceed the learning rate, %g", invocation_label(call, "min-lr", label),
                     config->training.min_lr, config->training.lr);
    if (steps->source == epochs->source && steps->source != SOURCE_DEFAULT)
        return USAGE("%s cannot be combined with --steps; use one or the other",
                     invocation_label(call, "epochs", label));
    bool by_epochs = epochs->source > steps->source;
    if (!by_epochs) config->training.epochs = 0;
    json_object_del(settings, by_epochs ? "steps" : "epochs");
    if (config->ckpt.resume_from) config->ckpt.resume = true;
    json_object_del(settings, "resume-from");
    json_object_del(settings, "resume"); /* these belong to this invocation, not to the run */
    json_object_del(settings, "trace");
    json_object_del(settings, "quiet");
    return OK;
}

/* ---- defaults that depend on the device ---- */

/* They apply only without --model and --config: a model that was asked for keeps its own sequence length, and
 * a configuration file means the same on every device. The run's config.json records the values, so --resume
 * does not depend on this table. */
typedef struct DeviceDefault {
    const char *option;
    const char *instead; /* an option that replaces it; NULL: none does */
    int64_t value;
} DeviceDefault;

/* A step takes less than a second on two cores, the run a few minutes. */
static const DeviceDefault cpu_defaults[] = {
    {"seq", NULL, 256},
    {"steps", "epochs", 500},
    {"eval-batches", "eval-samples", 4},
};

/* The validation before the first step is limited with --model too, because it affects nothing else. About
 * 5 s on two Neoverse-N1 cores. */
static const double first_eval_flops = 3e11;

enum { DEFAULTS_TEXT = 120 };
/* Sets options that were not given to values that suit the device, and describes them in `ret_text`. */
static void set_defaults(const Invocation *call, Settings *config, char ret_text[DEFAULTS_TEXT]) {
    size_t used = 0;
    ret_text[0] = 0;
    if (call->file || strcmp(config->device.name, "cpu")) return;
    if (!invocation_given(call, "eval-batches") && !invocation_given(call, "eval-samples"))
        config->validation.first_flops = first_eval_flops;
    if (invocation_given(call, "model")) return;
    for (size_t i = 0; i < COUNT_OF(cpu_defaults); i++) {
        const DeviceDefault *it = &cpu_defaults[i];
        if (invocation_given(call, it->option) || (it->instead && invocation_given(call, it->instead)))
            continue;
        *(int64_t *)invocation_slot(call, it->option)->field = it->value;
        int length = snprintf(ret_text + used, DEFAULTS_TEXT - used, "%s --%s %lld",
                              used ? "" : "defaults for a CPU:", it->option, (long long)it->value);
        used += length > 0 && (size_t)length < DEFAULTS_TEXT - used ? (size_t)length : 0;
    }
}

/* ---- the run ---- */

/* The newest checkpoint of a run, or NULL. Prefers the `latest` link: the run removes old checkpoints as it
 * goes, and with them the tokenizer files that it still needs. */
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

/* If the --model directory of a resumed run is gone, uses the run's newest checkpoint, which contains the
 * complete model. *ret_model stays NULL if the original model can be used. */
static Status find_model(const Invocation *call, const Settings *config, char **ret_model) {
    ModelConfig preset;
    if (!config->ckpt.resume || invocation_slot(call, "model")->source != SOURCE_FILE) return OK;
    if (path_is_dir(config->model.name) || !path_is_dir(config->ckpt.out)) return OK;
    CLEANUP(status_freep) Status unknown = config_preset(config->model.name, &preset);
    return unknown ? find_newest(config->ckpt.out, ret_model) : OK;
}

/* The same for the tokenizer; every checkpoint includes its files. */
static Status find_tokenizer(const Invocation *call, const Settings *config, char **ret_tokenizer) {
    const char *named = config->data.text.tokenizer;
    if (!config->ckpt.resume || !named || !strcmp(named, "bytes") || path_exists(named)) return OK;
    if (invocation_slot(call, "tokenizer")->source != SOURCE_FILE || !path_is_dir(config->ckpt.out))
        return OK;
    return find_newest(config->ckpt.out, ret_tokenizer);
}

/* Without its launcher, nobody reads what a rank prints; a terminal may still be there. */
static void report_stop(long long step, bool saved) {
    FILE *out = stop_orphaned() ? fopen("/dev/tty", "we") : stderr;
    if (!out) return;
    fprintf(out, "weft: stopped after step %lld%s%s\n", step, saved ? "; add --resume to continue" : "",
            stop_orphaned() ? "; the launcher was killed" : "");
    if (out != stderr) fclose(out);
}

/* Resolves the job on paper, before ranks start: a layout that does not fit the model or the batch is refused
 * at once. The files of the model and the data are those of rank 0, which must run here. */
static Status check_job(const Invocation *call, const TrainArgs *args) {
    CLEANUP(device_freep) Device *device = NULL;
    CLEANUP(mesh_freep) Mesh *mesh = NULL;
    CLEANUP(job_freep) Job *job = NULL;
    char defaults[DEFAULTS_TEXT];
    TrainArgs paper = *args;
    if (mpi_launched().launched || !hosts_start_here(call)) return OK;
    TRY(layout_settle(call, &paper.layout, 0));
    TRY(layout_check(call, &paper));
    if (paper.layout.ranks == 1 || paper.config.ckpt.resume) return OK;
    set_defaults(call, &paper.config, defaults);
    TRY(device_new_dryrun(&device, 1));
    TRY(mesh_new_dryrun(&mesh, layout_mesh(&paper.layout), 0, (int)paper.layout.ranks, true));
    paper.config.device.on = device;
    paper.config.run.mesh = mesh;
    return job_new(&job, &paper.config, JOB_TRAIN);
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    TrainArgs *args = arguments;
    bool here;
    TRY(check(call, args));
    TRY(check_job(call, args));
    TRY(layout_enter(call, args, true, &here));
    if (!here) return OK;
    char defaults[DEFAULTS_TEXT];
    set_defaults(call, &args->config, defaults);
    Settings config = args->config; /* with substitutions for this invocation only */
    config.report.note = defaults;
    CLEANUP(json_decrefp) json_t *settings = NULL;
    TRY(invocation_json(call, &settings));
    TRY(train_settle(call, &config, settings));
    CLEANUP(mem_freep) char *model = NULL, *tokenizer = NULL;
    TRY(find_model(call, &config, &model));
    if (model) config.model.name = model;
    TRY(find_tokenizer(call, &config, &tokenizer));
    if (tokenizer) config.data.text.tokenizer = tokenizer;
    config.training.warmup_file = warmup_file(call);
    config.run.stop = stop_catch(SA_RESTART);
    stop_grace(config.fault.signal_seconds);
    config.fault.work = stop_work();
    config.report.log = launch_log(call);
    TRY(train_run(&config, settings, ret_result));
    call->incomplete = json_is_true(json_object_get(*ret_result, "interrupted"));
    if (!call->incomplete) return OK;
    if (config.ckpt.out) call->exit_code = STATUS_SAVED;
    if (call->world->rank == 0)
        report_stop((long long)json_int_at(*ret_result, "steps"), config.ckpt.out != NULL);
    return OK;
}

/* Whether generate accepts text, rather than only token ids. */
static bool takes_text(const char *run) {
    CLEANUP(model_dir_done) ModelDir dir = {0};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    ModelConfig config;
    CLEANUP(status_freep) Status status = engine_find(run, &dir, &config);
    if (!status) status = text_tokenizer(dir.path, &config, NULL, &tokenizer);
    return tokenizer != NULL;
}

/* How the data was described to train; eval needs the same options. */
static void put_data_options(FILE *out, const Invocation *call) {
    static const char *const names[] = {"format", "field", "text-field", "pair-field", "label-field"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const Slot *slot = invocation_slot(call, names[i]);
        const char *value = *(const char *const *)slot->field;
        if (!invocation_given(call, names[i]) || !value) continue;
        fprintf(out, " --%s ", names[i]);
        show_word(out, value);
    }
}

/* The commands that are most likely to be useful next. */
static void put_next(FILE *out, const Invocation *call, const json_t *result, const char *run) {
    static const struct {
        const char *task, *command, *rest;
    } uses[] = {{"lm", "generate", " \"Once upon a time\""},
                {"squad", "answer", " article.txt \"Who was it?\""},
                {"", "eval", " FILE"}};
    const char *task = json_string_at(result, "task");
    int64_t best = json_int_at(result, "best_step");
    size_t at = 0;
    while (*uses[at].task && (!task || strcmp(uses[at].task, task))) at++;
    fprintf(out, "next: weft %s ", uses[at].command);
    show_word(out, run);
    if (best && best != json_int_at(result, "steps")) fputs("/best", out);
    fputs(at > 0 || takes_text(run) ? uses[at].rest : " --prompt-ids 1,2,3", out);
    if (!*uses[at].task) put_data_options(out, call);
    fputs("\n      weft report ", out);
    show_word(out, run);
    fputc('\n', out);
}

/* The steps that times and rates are about: all, or after a change of the layout those since then. */
static void put_steps(FILE *out, const json_t *result) {
    long long steps = (long long)json_int_at(result, "steps");
    long long covered =
        (long long)(json_int_at(result, "steps_measured") + json_int_at(result, "steps_excluded"));
    if (covered <= 0 || covered >= steps)
        fprintf(out, "%lld step%s", steps, PLURAL(steps));
    else if (covered == 1)
        fprintf(out, "step %lld", steps);
    else
        fprintf(out, "steps %lld to %lld", steps - covered + 1, steps);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const TrainArgs *args = call->config;
    char text[FORMAT_SIZE];
    double number;
    put_steps(out, result);
    if (json_has_number(result, "runtime_s", &number)) fprintf(out, " in %s", format_duration(text, number));
    if (json_has_number(result, "tokens_per_s", &number))
        fprintf(out, ", %s tokens/s", format_count(text, number));
    if (json_has_number(show_rank_peak(result), "total", &number))
        fprintf(out, ", peak memory %s", format_bytes(text, number));
    fputc('\n', out);
    if (json_has_number(result, "loss_first", &number)) fprintf(out, "loss %.4f", number);
    if (json_has_number(result, "loss_last", &number)) fprintf(out, " to %.4f", number);
    if (json_has_number(result, "val_loss", &number)) fprintf(out, ", validation loss %.4f", number);
    fputc('\n', out);
    if (json_has_number(result, "utilization", &number)) {
        fprintf(out, "utilization %.1f%%", 100 * number);
        if (json_has_number(result, "mfu", &number)) fprintf(out, ", MFU %.1f%%", 100 * number);
        double error = NAN;
        json_has_number(result, "noise_scale_error", &error);
        if (json_has_number(result, "noise_scale", &number))
            fprintf(out, ", gradient noise scale %s samples",
                    noise_text(text, number, error, terminal_utf8()));
        fputc('\n', out);
    }
    if (json_has_number(result, "bubble", &number) && number > 0)
        fprintf(out, "pipeline bubble %.1f%% of forward and backward\n", 100 * number);
    if (args->config.ckpt.out)
        fprintf(out, "run directory %s, newest checkpoint %s/latest\n", args->config.ckpt.out,
                args->config.ckpt.out);
    if (json_has_number(result, "best_val_loss", &number))
        fprintf(out, "best checkpoint %s/best: step %lld, validation loss %.4f\n", args->config.ckpt.out,
                (long long)json_int_at(result, "best_step"), number);
    if (args->config.ckpt.out && !args->config.report.quiet && !call->incomplete)
        put_next(out, call, result, args->config.ckpt.out);
    return OK;
}

const Command command_train = {
    .name = "train",
    .summary = "train a model from scratch or from a checkpoint",
    .description =
        "Checkpoints are Hugging Face directories that transformers loads unchanged. A run that was "
        "interrupted, by Ctrl-C or a power failure, continues with --resume as if it had never "
        "stopped.\n\n"
        "On a CPU, without --model and --config, the defaults are smaller: --seq 256 --steps 500 "
        "--eval-batches 4.\n\n"
        "A configuration file may use the keys of DeepSpeed and of transformers' TrainingArguments.",
    .positional = POSITIONAL("data"),
    .config_size = sizeof(TrainArgs),
    .groups = train_groups,
    .examples =
        {{"Train a small byte-level GPT-2 on weft's own source",
          "weft train self --steps 200 --out runs/first"},
         {"Continue an interrupted run", "weft train --out runs/first --resume"},
         {"Fine-tune a Hugging Face checkpoint on your own tokens",
          "weft train --model path/to/gpt2 --data tokens.u16 --lr 3e-5 --batch 16 --micro-batch 4 --out "
          "runs/mine"},
         {"Read settings from a file and override one", "weft train --config run.json --lr 1e-4"}},
    .recipe = RECIPE_CONFIG,
    .other_keys = true,
    .resumes = true,
    .run = run,
    .show = show,
};
