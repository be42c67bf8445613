/* What the runs ran on, and the commands that repeat them. Runs on equal machines share an entry. */
#include <string.h>

#include "base/format.h"
#include "report/page.h"

/* The keys that make two machines equal. */
static const char *const same_keys[] = {"weft",           "cpu",  "cores", "memory_bytes", "instruction_set",
                                        "matrix_library", "gpus", "hosts", "host_count"};

static bool same_machine(const json_t *a, const json_t *b) {
    for (size_t i = 0; i < sizeof same_keys / sizeof *same_keys; i++) {
        const json_t *one = json_object_get(a, same_keys[i]), *two = json_object_get(b, same_keys[i]);
        if (one != two && !json_equal(one, two)) return false;
    }
    return true;
}

static const json_t *machine_of(const Run *run) {
    return run_predicted(run) ? NULL : run->summary.machine;
}

/* The next run from *at on that ran on this machine; NULL at the end. *at: the one after it. */
static const Run *next_on(const Results *results, const json_t *machine, size_t *at) {
    while (*at < results->count) {
        const Run *run = &results->runs[(*at)++];
        if (machine_of(run) && same_machine(machine_of(run), machine)) return run;
    }
    return NULL;
}

/* ---- an entry ---- */

static void put_hardware(Page *page, const json_t *machine) {
    char memory[FORMAT_SIZE];
    double cores = json_number_at(machine, "cores");
    const json_t *gpus = json_object_get(machine, "gpus"), *first = json_array_get(gpus, 0);
    page_put(page, "<dt>Processor</dt><dd>%s, %.0f core%s, %s memory; SIMD %s, GEMM %s</dd>\n",
             json_string_or(machine, "cpu", "unknown"), cores, PLURAL(cores),
             format_bytes(memory, json_number_at(machine, "memory_bytes")),
             json_string_or(machine, "instruction_set", ""), json_string_or(machine, "matrix_library", ""));
    if (first)
        page_put(page, "<dt>GPUs</dt><dd>%zu x %s, %s each</dd>\n", json_array_size(gpus),
                 json_string_or(first, "name", "unknown"),
                 format_bytes(memory, json_number_at(first, "memory_bytes")));
}

static void put_hosts(Page *page, const json_t *machine) {
    const json_t *hosts = json_object_get(machine, "hosts"), *host;
    double count = json_number_at(machine, "host_count");
    size_t i;
    page_put(page, "<dt>Host%s</dt><dd>", PLURAL(count));
    json_array_foreach(hosts, i, host)
        page_put(page, "%s%s", i ? ", " : "", json_is_string(host) ? json_string_value(host) : "?");
    if (count > (double)json_array_size(hosts)) page_put(page, " and others, %.0f in all", count);
    page_put(page, "</dd>\n");
}

/* The machine; the MPI library of a run that used one, and the earliest and latest end of the runs, whose
 * dates sort as text. `named`: with the runs. */
static void put_entry(Page *page, const Results *results, const json_t *machine, bool named) {
    const char *mpi = "", *first = "", *last = "";
    const Run *run;
    if (named) page_put(page, "<h3>");
    for (size_t at = 0, count = 0; (run = next_on(results, machine, &at)); count++) {
        const char *date = json_string_or(machine_of(run), "date", "");
        if (!*mpi) mpi = json_string_or(machine_of(run), "mpi", "");
        if (*date && (!*first || strcmp(date, first) < 0)) first = date;
        if (strcmp(date, last) > 0) last = date;
        if (named) page_put(page, "%s%s", count ? ", " : "", run->name);
    }
    page_put(page, named ? "</h3>\n<dl>\n" : "<dl>\n");
    put_hardware(page, machine);
    put_hosts(page, machine);
    if (*mpi) page_put(page, "<dt>MPI</dt><dd>%s</dd>\n", mpi);
    page_put(page, "<dt>weft</dt><dd>%s</dd>\n", json_string_or(machine, "weft", "unknown"));
    if (*first) page_put(page, "<dt>Date</dt><dd>%.10s", first);
    if (*first && strncmp(first, last, 10)) page_put(page, " to %.10s", last);
    page_put(page, *first ? "</dd>\n</dl>\n" : "</dl>\n");
}

/* Whether run `at` is the first on its machine. */
static bool is_first(const Results *results, size_t at) {
    const json_t *machine = machine_of(&results->runs[at]);
    size_t from = 0;
    return machine && next_on(results, machine, &from) == &results->runs[at];
}

/* ---- options and commands ---- */

static void put_value(Page *page, const json_t *value) {
    char *text = json_serialize(value, JSON_ENCODE_ANY | JSON_COMPACT);
    page_put(page, "%s", json_is_string(value) ? json_string_value(value) : text ? text : "");
    free(text);
}

static const Run *first_with_settings(const Results *results) {
    results_foreach(results, run) {
        if (run->settings) return run;
    }
    return NULL;
}

static bool all_have(const Results *results, const char *key, const json_t *value) {
    results_foreach(results, run) {
        if (run->settings && !json_equal(json_object_get(run->settings, key), value)) return false;
    }
    return true;
}

/* Options of single starts. */
static bool is_hidden(const char *key) {
    return !strcmp(key, "out") || !strcmp(key, "resume") || !strcmp(key, "quiet");
}

static void put_options(Page *page, const Results *results) {
    const Run *first = first_with_settings(results);
    const char *key;
    json_t *value;
    bool any = false;
    if (!first) return;
    page_put(page, "<details><summary>Options%s</summary>\n<p class=\"options\">",
             results->count > 1 ? " that all runs share" : "");
    json_object_foreach(first->settings, key, value) {
        if (is_hidden(key) || json_is_null(value) || !all_have(results, key, value)) continue;
        page_put(page, any ? " <span>%s&nbsp;" : "<span>%s&nbsp;", key);
        put_value(page, value);
        page_put(page, "</span>");
        any = true;
    }
    page_put(page, "</p></details>\n");
}

Status put_machine(Page *page, const Results *results) {
    size_t machines = 0;
    for (size_t i = 0; i < results->count; i++) machines += is_first(results, i);
    if (!machines && !results->command && !first_with_settings(results)) return OK;
    page_section(page, "Machine and method", NULL);
    for (size_t i = 0; i < results->count; i++)
        if (is_first(results, i)) put_entry(page, results, machine_of(&results->runs[i]), machines > 1);
    if (results->command)
        page_put(page, "<p class=\"lead\">To repeat it:</p>\n<pre>%s</pre>\n", results->command);
    put_options(page, results);
    return OK;
}
