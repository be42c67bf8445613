#include "verify/internal.h"

static const char *const check_names[CHECK_KINDS] = {"kernels", "ranks",    "layouts",
                                                     "repeats", "replicas", "checkpoints"};

Status verify_findings_init(Findings *ret_findings, Group *world) {
    *ret_findings = (Findings){.failures = json_array(), .world = world};
    return ret_findings->failures ? OK : FAILED("out of memory");
}

void verify_findings_done(Findings *findings) {
    json_decref(findings->failures);
    *findings = (Findings){0};
}

void verify_case(Findings *findings, CheckKind check, int precision, const TrialSpec *spec, const Diff *diff,
                 bool failed) {
    Tally *tally = &findings->tally[check][precision];
    tally->cases++;
    tally->failed += failed;
    for (DiffKind kind = 0; diff && kind < DIFF_KINDS; kind++) {
        tally->limit[kind] = diff_limit(spec, kind);
        if (diff_is_more(diff->of[kind], tally->worst[kind])) tally->worst[kind] = diff->of[kind];
    }
}

static json_t *ranks_json(const Findings *findings, const bool *rank) {
    json_t *list = json_array();
    for (int r = 0; r < findings->world->size; r++)
        if (rank[r]) json_array_append_new(list, json_integer(r));
    return list;
}

Status verify_fault(Findings *findings, const Fault *fault) {
    CLEANUP(model_freep) Model *model = NULL;
    ModelConfig config;
    trial_config(fault->spec, &config);
    TRY(model_new(&model, &config));
    json_t *json = json_pack(
        "{s:s, s:s, s:s?, s:i, s:s, s:s?, s:o, s:f, s:o}", "check", check_names[fault->check], "layout",
        fault->layout, "smallest", fault->smallest, "step", fault->step, "what", fault->what, "parameter",
        fault->param < 0 ? NULL : model_param_name(model, fault->param), "difference",
        json_finite(fault->difference), "limit", fault->limit, "ranks", ranks_json(findings, fault->rank));
    return json && !json_array_append_new(findings->failures, json) ? OK : FAILED("out of memory");
}

static json_t *tally_json(const Tally *tally, const char *check, const char *precision) {
    static const char *const keys[DIFF_KINDS] = {"loss", "gradient_norm", "gradient", "optimizer_state",
                                                 "weight"};
    json_t *row = json_pack("{s:s, s:s, s:i, s:i}", "check", check, "precision", precision, "cases",
                            tally->cases, "failed", tally->failed);
    json_t *limits = json_object();
    for (DiffKind kind = 0; kind < DIFF_KINDS; kind++) {
        if (!(tally->limit[kind] > 0)) continue;
        json_object_set_new(row, keys[kind], json_finite(tally->worst[kind]));
        json_object_set_new(limits, keys[kind], json_real(tally->limit[kind]));
    }
    json_object_set_new(row, "limits", limits);
    return row;
}

Status verify_findings_json(const Findings *findings, const Precision *precision, int precisions,
                            json_t **ret_checks, bool *ret_ok) {
    json_t *list = json_array();
    bool ok = true;
    for (CheckKind check = 0; check < CHECK_KINDS; check++)
        for (int p = 0; p < precisions; p++) {
            const Tally *tally = &findings->tally[check][p];
            if (tally->cases)
                json_array_append_new(list, tally_json(tally, check_names[check], precision[p].name));
            ok &= !tally->failed;
        }
    if (!list) return FAILED("out of memory");
    *ret_checks = list;
    *ret_ok = ok;
    return OK;
}
