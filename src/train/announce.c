#include "base/format.h"
#include "data/released.h"
#include "model/head.h"
#include "train/trainer.h"

/* Parameters and elements that a group changes. */
static void announce_group(const Job *job, Progress *progress, int index) {
    const OptimSpec *optim = &job->settings.run.optim;
    const OptimGroup *group = &optim->group[index];
    const Model *model = job->model;
    char count[FORMAT_SIZE], decay[64] = "";
    int64_t params = 0, elements = 0;
    for (ModelParam param = {0}; model_param_next(model, &param);) {
        int last = optim->groups - 1;
        while (last >= 0 && !optim_group_matches(&optim->group[last], param.desc)) last--;
        if (last != index) continue;
        params++;
        elements += param_count(param.desc);
    }
    if (group->weight_decay >= 0) snprintf(decay, sizeof decay, ", weight decay %g", group->weight_decay);
    progress_line(progress, "group %s: %lld parameter tensor%s, %s elements; learning rate x %g%s",
                  group->pattern, (long long)params, PLURAL(params), format_count(count, (double)elements),
                  group->lr, decay);
}

/* The optimizer, unless it is AdamW, and the parameter groups with what they change. */
static void announce_optimizer(const Job *job, Progress *progress) {
    const OptimSpec *optim = &job->settings.run.optim;
    if (optim->kind != optim_row(0))
        progress_line(progress, "optimizer: %s%s", optim->kind->name,
                      optim->kind->whole.count ? " for the matrices of layers, adamw for other parameters"
                                               : "");
    for (int i = 0; i < optim->groups; i++) announce_group(job, progress, i);
}

void trainer_announce(const Trainer *t, const LoadReport *report) {
    const ModelConfig *c = &t->job->model->config;
    char params[FORMAT_SIZE];
    const ModelSettings *sizes = &t->config->model;
    bool fresh = !t->job->model_dir && !t->resumable, released = fresh && !sizes->layers && !sizes->hidden;
    const FetchSet *set = released ? released_set(sizes->name) : NULL;
    if (t->config->report.note && *t->config->report.note)
        progress_line(t->progress, "%s", t->config->report.note);
    progress_line(
        t->progress,
        "model: %s, %lld layer%s, hidden size %lld, %lld head%s, vocabulary %lld, %s parameters%s; task %s",
        t->config->model.name, (long long)c->layers, PLURAL(c->layers), (long long)c->hidden,
        (long long)c->heads, PLURAL(c->heads), (long long)c->vocab,
        format_count(params, (double)model_params(t->job->model)), fresh ? ", initialized at random" : "",
        task_names[t->job->task]);
    if (c->experts)
        progress_line(t->progress, "mixture: %lld expert%s, %lld per token%s, %s parameters per token",
                      (long long)c->experts, PLURAL(c->experts), (long long)c->top_k,
                      c->shared_inner ? " and a shared one" : "",
                      format_count(params, (double)model_active(t->job->model)));
    if (model_trained(t->job->model) < model_params(t->job->model))
        progress_line(t->progress, "%s parameters are trained, the others frozen",
                      format_count(params, (double)model_trained(t->job->model)));
    if (set)
        progress_line(t->progress, "for the released weights of %s: weft fetch %s, then {model} @%s",
                      t->config->model.name, set->name, set->name);
    progress_line(
        t->progress,
        "data: %lld tokens, %lld sample%s of %lld tokens per epoch; training %lld step%s at batch size %lld",
        (long long)dataset_tokens(t->data), (long long)dataset_count(t->data), PLURAL(dataset_count(t->data)),
        (long long)t->job->seq, (long long)t->lr.steps, PLURAL(t->lr.steps),
        (long long)t->config->training.batch);
    if (config_labeled(c))
        progress_line(t->progress, "labels: %lld; problem type %s", (long long)c->labels,
                      problem_name(config_problem(c)));
    char text[TOKENIZER_ID_TEXT];
    if (t->job->tokens_known)
        progress_line(t->progress,
                      t->job->tokenizer || t->job->bytes
                          ? "tokenizer: %s (%s)"
                          : "tokenizer: %s (%s); add {tokenizer} to store its files in checkpoints",
                      t->job->tokenizer_name, tokenizer_id_text(&t->job->tokens, text));
    job_report(t->job, report, t->progress);
    announce_optimizer(t->job, t->progress);
    const SeqWarmup *growth = &t->job->seq_warmup;
    if (growth->steps)
        progress_line(
            t->progress,
            "sequence length: doubles from %lld to %lld over the first %lld step%s; until then, parts "
            "of each sequence attend to themselves only",
            (long long)growth->from, (long long)growth->seq, (long long)growth->steps, PLURAL(growth->steps));
    if (t->config->training.warmup > t->lr.warmup)
        progress_line(t->progress,
                      "warning: the warm-up of %lld steps (%s) is longer than the run; it takes all %lld "
                      "step%s instead",
                      (long long)t->config->training.warmup, t->config->training.warmup_file,
                      (long long)t->lr.steps, PLURAL(t->lr.steps));
    if (!t->config->ckpt.out)
        progress_line(t->progress, "no {out} directory: the trained weights will not be saved");
}
