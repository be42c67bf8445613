#include "train/announce.h"

#include "base/format.h"

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

void announce_optimizer(const Job *job, Progress *progress) {
    const OptimSpec *optim = &job->settings.run.optim;
    if (optim->kind != optim_row(0))
        progress_line(progress, "optimizer: %s%s", optim->kind->name,
                      optim->kind->whole.count ? " for the matrices of layers, adamw for other parameters"
                                               : "");
    for (int i = 0; i < optim->groups; i++) announce_group(job, progress, i);
}
