/* Scoring files of answers. */
#include "train/squad.h"

#include <string.h>

#include "data/squad.h"

/* Options that make no sense with a file of answers are refused: they would be passed over in silence. */
static Status check_options(const EvalConfig *config) {
    if (strcmp(config->task, "squad") && strcmp(config->task, "auto"))
        return USAGE("--predictions is for --task squad, not for %s", config->task);
    if (config->model)
        return USAGE("--model and --predictions both say whose answers to score; give one of them");
    return OK;
}

Status squad_eval_predictions(const EvalConfig *config, json_t **ret_result) {
    const SquadEval *squad = &config->squad;
    CLEANUP(squad_set_done) SquadSet set = {0};
    CLEANUP(json_decrefp) json_t *answers = NULL;
    CLEANUP(json_decrefp) json_t *na_prob = NULL;
    TRY(check_options(config));
    for (int i = 0; i < config->data_count; i++) TRY(squad_set_read(&set, config->data[i]));
    TRY(squad_json_read(squad->predictions, &answers));
    if (squad->na_prob) TRY(squad_json_read(squad->na_prob, &na_prob));
    SquadPredictions given = {.answers = answers,
                              .from = squad->predictions,
                              .na_prob = na_prob,
                              .na_from = squad->na_prob,
                              .na_thresh = squad->na_thresh};
    SquadScore score;
    TRY(squad_score(&set, &given, &score));
    return squad_score_json(&score, ret_result);
}
