/* Parameter groups: settings for the parameters that match a pattern. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"

bool optim_group_matches(const OptimGroup *group, const ParamDesc *desc) {
    return param_matches(desc, group->pattern);
}

/* Parses one KEY=VALUE of `length` characters. */
static Status parse_setting(const char *text, const char *setting, size_t length, OptimGroup *group) {
    size_t key = strcspn(setting, "=,");
    bool is_lr = key == 2 && !strncmp(setting, "lr", 2);
    if (!is_lr && (key != 12 || strncmp(setting, "weight-decay", 12)))
        return USAGE("{group} '%s': unknown setting '%.*s'; expected lr or weight-decay", text, (int)key,
                     setting);
    char *end = NULL;
    double value = setting[key] == '=' ? strtod(setting + key + 1, &end) : 0;
    if (!end || end == setting + key + 1 || end != setting + length || !isfinite(value) || value < 0)
        return USAGE("{group} '%s': '%.*s' needs a number >= 0, as in %.*s=0.1", text, (int)length, setting,
                     (int)key, setting);
    *(is_lr ? &group->lr : &group->weight_decay) = value;
    return OK;
}

Status optim_group_parse(const char *text, OptimGroup *ret_group) {
    OptimGroup group = {.lr = 1, .weight_decay = -1};
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (!length || !colon[1])
        return USAGE("{group} '%s': expected PATTERN:SETTINGS, such as '*.bias:lr=0.1,weight-decay=0'", text);
    if (length >= sizeof group.pattern)
        return USAGE("{group} '%s': the pattern is longer than %d characters", text, PARAM_NAME - 1);
    memcpy(group.pattern, text, length);
    for (const char *at = colon + 1; at; at = strchr(at, ',')) {
        at += *at == ',';
        TRY(parse_setting(text, at, strcspn(at, ","), &group));
    }
    *ret_group = group;
    return OK;
}
