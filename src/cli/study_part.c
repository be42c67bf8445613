/* Command lines of a study's parts, and what their plans predict for this machine. */
#include "cli/study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fs.h"
#include "base/memory.h"
#include "cli/compare.h"
#include "cli/train_options.h"
#include "compare/recipe.h"
#include "device/registry.h"
#include "model/family.h"
#include "plan/cluster.h"
#include "tokenizer/tokenizer.h"
#include "train/epoch.h"

#define OUT_MARK   "{out}"
#define BYTES_EACH 12.0 /* of a checkpoint per parameter: weights and two moments, fp32 */
#define START_S    1.0  /* a run's start, last checkpoint and end */

static Status put_word(TextList *line, const char *word) {
    return texts_keep(line, &word);
}

static Status add_pair(TextList *line, const char *option, const char *value) {
    if (!value) return OK;
    TRY(put_word(line, option));
    return put_word(line, value);
}

/* An option's word, with the study's directory for OUT_MARK. */
static Status add_word(TextList *line, const char *word, const char *dir) {
    const char *mark = strstr(word, OUT_MARK);
    CLEANUP(mem_freep) char *text = NULL;
    if (!mark) return put_word(line, word);
    TRY(str_format(&text, "%.*s%s%s", (int)(mark - word), word, dir, mark + strlen(OUT_MARK)));
    return put_word(line, text);
}

static bool is_comparison(const StudyPart *part) {
    return !strcmp(part->command, command_compare.name);
}

static size_t option_count(const StudyPart *part) {
    return json_array_size(part->options);
}

static const char *option_at(const StudyPart *part, size_t at) {
    return json_string_value(json_array_get(part->options, at));
}

/* The options from `from` to `to`, or to the end or "--". Returns where they end. */
static Status add_options(TextList *line, const StudyPart *part, const char *dir, size_t *at) {
    for (; *at < option_count(part) && strcmp(option_at(part, *at), "--"); ++*at)
        TRY(add_word(line, option_at(part, *at), dir));
    return OK;
}

/* The words of a command's name, "tokenizer train". */
static Status add_command(TextList *line, const StudyPart *part) {
    CLEANUP(mem_freep) char *name = NULL;
    char *rest = NULL;
    TRY(str_format(&name, "%s", part->command));
    for (char *word = strtok_r(name, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        TRY(put_word(line, word));
    return OK;
}

/* A part's command, and how many words name it. */
static Status find(const StudyPart *part, const Command **ret_command, size_t *ret_words) {
    CLEANUP(texts_done) TextList words = {0};
    TRY(add_command(&words, part));
    Status unknown = command_find((const char *const *)words.texts, words.count, ret_command, ret_words);
    if (!unknown && *ret_words < words.count)
        unknown = USAGE("'%s' takes no subcommand", words.texts[*ret_words - 1]);
    return unknown ? status_wrap(unknown, "part '%s'", part->name) : OK;
}

bool study_part_resumes(const StudyPart *part) {
    const Command *command;
    size_t words;
    CLEANUP(status_freep) Status unknown = find(part, &command, &words);
    return !unknown && (command == &command_compare || command_option(command, "resume"));
}

/* Options for the runs of a comparison, after "--". */
static Status add_run_options(TextList *line, const StudyArgs *args, const StudyPart *part, const char *dir,
                              size_t at) {
    if (at < option_count(part)) at++;
    TRY(add_options(line, part, dir, &at));
    return add_pair(line, "--device", args->device);
}

Status study_line(const StudyArgs *args, const StudyPart *part, const char *dir, bool resume,
                  TextList *line) {
    const Command *command;
    CLEANUP(mem_freep) char *out = NULL;
    size_t at = 0, words;
    TRY(find(part, &command, &words));
    TRY(add_command(line, part));
    if (is_comparison(part) && part->recipe) TRY(put_word(line, part->recipe));
    if (!is_comparison(part)) TRY(add_pair(line, "--config", part->recipe));
    TRY(add_pair(line, "--run", part->run));
    if (part->recipe) TRY(add_pair(line, "--scale", part->scale));
    TRY(str_format(&out, "%s/%s", dir, part->name));
    if (command_option(command, "out")) TRY(add_pair(line, "--out", out));
    if (resume && command_option(command, "resume")) TRY(put_word(line, "--resume"));
    TRY(add_options(line, part, dir, &at));
    if (!is_comparison(part))
        return command_option(command, "device") ? add_pair(line, "--device", args->device) : OK;
    if (args->simulate) TRY(put_word(line, "--simulate"));
    if (args->share_gpus) TRY(put_word(line, "--share-gpus"));
    if (args->retry) TRY(put_word(line, "--retry"));
    TRY(add_pair(line, "--cluster", args->cluster));
    TRY(put_word(line, "--"));
    return add_run_options(line, args, part, dir, at);
}

Status study_check_part(const StudyArgs *args, const StudyPart *part, const char *dir) {
    CLEANUP(texts_done) TextList line = {0};
    CLEANUP(invocation_freep) Invocation *call = NULL;
    CLEANUP(recipe_done) Recipe recipe = {0};
    const Command *command;
    size_t words;
    TRY(find(part, &command, &words));
    if (is_comparison(part) && !part->recipe)
        return USAGE("part '%s': '%s' requires a recipe", part->name, part->command);
    TRY(study_line(args, part, dir, false, &line));
    Status wrong = invocation_read(&call, command, (int)(line.count - words), line.texts + words);
    if (!wrong && is_comparison(part)) wrong = recipe_read(&recipe, part->recipe, part->scale);
    return wrong ? status_wrap(wrong, "part '%s'", part->name) : OK;
}

/* ---- cost ---- */

/* The built-in description of this machine's GPU or CPU; NULL: none. */
static const char *this_machine(const StudyArgs *args) {
    CudaInfo info;
    if (!args->device || strcmp(args->device, "cuda")) return "cpu";
    device_cuda_info(&info);
    for (const char *const *name = cluster_names(); info.devices && *name; name++)
        if (strcasestr(info.device[0].name, *name)) return *name;
    return NULL;
}

/* Checkpoints that a run of that many steps leaves. */
static double checkpoints_of(const Settings *config, double steps) {
    int64_t every = config->ckpt.save_every;
    double saves = every > 0              ? ceil(steps / (double)every)
                   : every == EVERY_EPOCH ? config->training.epochs
                                          : 1,
           kept = (double)config->ckpt.keep + 1; /* and the best one */
    return saves < 1 ? 1 : saves > kept && config->ckpt.keep ? kept : saves;
}

/* Plans have no data, so a preset would be planned with its own vocabulary instead of the tokenizer's. A
 * tokenizer that is yet to be made or fetched is taken for the preset's. */
static Status settle_vocabulary(Settings *config) {
    const char *name = config->data.text.tokenizer;
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    ModelConfig preset;
    CLEANUP(status_freep) Status released = config_preset(config->model.name, &preset);
    if (released || config->model.vocab) return OK;
    if (!name || !strcmp(name, "bytes"))
        TRY(tokenizer_new_bytes(&tokenizer, preset.family->byte_specials));
    else if (path_exists(name))
        TRY(tokenizer_load(&tokenizer, name));
    if (tokenizer) config->model.vocab = tokenizer_vocab(tokenizer);
    return OK;
}

/* Validations, before the first step too; forward passes are a third of a step. */
static double validation_seconds(const Settings *config, const json_t *summary) {
    const ValidationSettings *val = &config->validation;
    double steps = json_number_at(summary, "steps"), batch = (double)config->training.batch,
           samples = val->samples ? (double)val->samples : (double)val->batches * batch,
           count = val->every > 0              ? 1 + ceil(steps / (double)val->every)
                   : val->every == EVERY_EPOCH ? 1 + config->training.epochs
                                               : 2;
    return count * samples / batch * 1e-3 * json_number_at(summary, "step_ms") / 3;
}

/* A run that cannot be planned is counted as unknown. */
static Status add_run(const StudyArgs *args, RunSpec run, const char *cluster, double samples,
                      StudyCost *cost) {
    CLEANUP(json_decrefp) json_t *summary = NULL;
    const char *machine = this_machine(args);
    double seconds = 0;
    bool needed = args->simulate;
    cost->runs++;
    if (!needed && cluster) TRY(predict_needed(&run, args->share_gpus, &needed));
    cost->simulated += needed;
    if (needed) return OK;
    TRY(settle_vocabulary(&run.config));
    Prediction how = {.cluster = machine, .samples = samples, .any_device = true};
    CLEANUP(status_freep) Status misfit = machine ? predict_run(&run, &how, NULL, &summary) : OK;
    if (json_has_number(summary, "runtime_s", &seconds))
        cost->seconds += START_S + seconds + validation_seconds(&run.config, summary);
    else
        cost->unknown++;
    cost->bytes += BYTES_EACH * json_number_at(summary, "params_total") *
                   checkpoints_of(&run.config, json_number_at(summary, "steps"));
    return OK;
}

/* The runs of a comparison, as `weft train` would execute them. */
static Status add_comparison(const StudyArgs *args, const StudyPart *part, StudyCost *cost) {
    CLEANUP(recipe_done) Recipe recipe = {0};
    TRY(recipe_read(&recipe, part->recipe, part->scale));
    for (size_t i = 0; i < json_array_size(recipe.runs); i++) {
        CLEANUP(texts_done) TextList line = {0};
        CLEANUP(invocation_freep) Invocation *train = NULL;
        CLEANUP(mem_freep) char *name = NULL;
        RunSpec run;
        size_t at = 0;
        while (at < option_count(part) && strcmp(option_at(part, at), "--")) at++;
        TRY(str_format(&name, "--run=%s", json_string_at(json_array_get(recipe.runs, i), "name")));
        TRY(add_pair(&line, "--config", part->recipe));
        TRY(put_word(&line, name));
        TRY(add_pair(&line, "--scale", part->scale));
        TRY(add_run_options(&line, args, part, "", at));
        TRY(invocation_read(&train, &command_train, (int)line.count, line.texts));
        TRY(compare_settle(train, &run));
        const char *cluster = args->cluster ? args->cluster : recipe_cluster(&recipe, i);
        TRY(add_run(args, run, cluster, recipe.samples, cost));
    }
    return OK;
}

/* A pruning trains each kind for all of its rounds. */
static Status add_pruning(const StudyArgs *args, Invocation *call, StudyCost *cost) {
    PruneArgs *prune = call->config;
    Settings *config = &prune->train.config;
    TRY(layout_settle(call, &prune->train.layout, 0));
    config->training.steps =
        prune->prune.steps_per_round * (prune->prune.rounds + 1) * (prune->prune.also ? 2 : 1);
    config->ckpt.save_every = prune->prune.steps_per_round;
    config->ckpt.keep = 0;
    return add_run(args, (RunSpec){.config = *config, .mesh = layout_mesh(&prune->train.layout)}, NULL, 0,
                   cost);
}

static Status add_other(const StudyArgs *args, const StudyPart *part, StudyCost *cost) {
    CLEANUP(texts_done) TextList line = {0};
    CLEANUP(invocation_freep) Invocation *call = NULL;
    const Command *command;
    RunSpec run;
    size_t words;
    TRY(find(part, &command, &words));
    TRY(study_line(args, part, "", false, &line));
    TRY(invocation_read(&call, command, (int)(line.count - words), line.texts + words));
    if (command == &command_prune) return add_pruning(args, call, cost);
    if (command == &command_prepare || command == &command_tokenizer_train) return OK; /* a few seconds */
    if (command != &command_train) return cost->runs++, cost->unknown++, OK;
    TRY(compare_settle(call, &run));
    return add_run(args, run, NULL, 0, cost);
}

Status study_add_cost(const StudyArgs *args, const StudyPart *part, StudyCost *cost) {
    if (is_comparison(part)) return add_comparison(args, part, cost);
    return args->simulate ? OK : add_other(args, part, cost);
}
