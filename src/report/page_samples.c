/* The last text that each run generated while it trained, side by side for runs with the same prompt. */
#include <string.h>

#include "report/page.h"

static const char *prompt_of(const Run *run) {
    return json_string_at(run->sample, "prompt");
}

static bool same_prompt(const Run *a, const Run *b) {
    return a->sample && b->sample && !strcmp(prompt_of(a), prompt_of(b));
}

static bool is_first(const Results *results, const Run *run) {
    results_foreach(results, before) {
        if (before == run) return true;
        if (same_prompt(before, run)) return false;
    }
    return true;
}

static bool has_sample(const Run *run) {
    return run->sample != NULL;
}

Status put_samples(Page *page, const Results *results) {
    if (!results_count(results, has_sample)) return OK;
    page_section(page, "Samples", "The last text that each run generated while it trained.");
    results_foreach(results, first) {
        if (!has_sample(first) || !is_first(results, first)) continue;
        page_put(page, "<h3>“%s” continued</h3>\n", prompt_of(first));
        page_group(page, "tiles texts");
        results_foreach(results, run) {
            if (same_prompt(first, run))
                page_put(page, "<div class=\"tile\"><span>%s, step %.0f</span>%s</div>\n", run->name,
                         json_number_at(run->sample, "step"), json_string_at(run->sample, "sample"));
        }
        page_group_end(page);
    }
    return OK;
}
