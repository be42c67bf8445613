/* What the runs ran on, and the commands that repeat them. Runs on equal machines share an entry. */
#include <stdarg.h>
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

static void put_row(FILE *out, const char *name, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void put_row(FILE *out, const char *name, const char *fmt, ...) {
    char text[320];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fprintf(out, "<dt>%s</dt><dd>", name);
    put_html(out, text);
    fputs("</dd>\n", out);
}

static void put_hardware(FILE *out, const json_t *machine) {
    char memory[FORMAT_SIZE];
    double cores = json_number_at(machine, "cores");
    const json_t *gpus = json_object_get(machine, "gpus"), *first = json_array_get(gpus, 0);
    put_row(out, "Processor", "%.120s, %.0f core%s, %s memory; SIMD %.30s, GEMM %.60s",
            json_string_or(machine, "cpu", "unknown"), cores, PLURAL(cores),
            format_bytes(memory, json_number_at(machine, "memory_bytes")),
            json_string_or(machine, "instruction_set", ""), json_string_or(machine, "matrix_library", ""));
    if (first)
        put_row(out, "GPUs", "%zu x %.80s, %s each", json_array_size(gpus),
                json_string_or(first, "name", "unknown"),
                format_bytes(memory, json_number_at(first, "memory_bytes")));
}

static void put_hosts(FILE *out, const json_t *machine) {
    const json_t *hosts = json_object_get(machine, "hosts"), *host;
    double count = json_number_at(machine, "host_count");
    size_t i;
    fprintf(out, "<dt>Host%s</dt><dd>", PLURAL(count));
    json_array_foreach(hosts, i, host) {
        if (i) fputs(", ", out);
        put_html(out, json_is_string(host) ? json_string_value(host) : "?");
    }
    if (count > (double)json_array_size(hosts)) fprintf(out, " and others, %.0f in all", count);
    fputs("</dd>\n", out);
}

/* The machine; the MPI library of a run that used one, and the earliest and latest end of the runs, whose
 * dates sort as text. `named`: with the runs. */
static void put_entry(FILE *out, const Results *results, const json_t *machine, bool named) {
    const char *mpi = "", *first = "", *last = "";
    const Run *run;
    if (named) fputs("<h3>", out);
    for (size_t at = 0, count = 0; (run = next_on(results, machine, &at)); count++) {
        const char *date = json_string_or(machine_of(run), "date", "");
        if (!*mpi) mpi = json_string_or(machine_of(run), "mpi", "");
        if (*date && (!*first || strcmp(date, first) < 0)) first = date;
        if (strcmp(date, last) > 0) last = date;
        if (named && count) fputs(", ", out);
        if (named) put_html(out, run->name);
    }
    fprintf(out, "%s<dl>\n", named ? "</h3>\n" : "");
    put_hardware(out, machine);
    put_hosts(out, machine);
    if (*mpi) put_row(out, "MPI", "%s", mpi);
    put_row(out, "weft", "%s", json_string_or(machine, "weft", "unknown"));
    if (*first && !strncmp(first, last, 10))
        put_row(out, "Date", "%.10s", first);
    else if (*first)
        put_row(out, "Date", "%.10s to %.10s", first, last);
    fputs("</dl>\n", out);
}

/* Whether run `at` is the first on its machine. */
static bool is_first(const Results *results, size_t at) {
    const json_t *machine = machine_of(&results->runs[at]);
    size_t from = 0;
    return machine && next_on(results, machine, &from) == &results->runs[at];
}

/* ---- options and commands ---- */

static void put_value(FILE *out, const json_t *value) {
    char *text = json_serialize(value, JSON_ENCODE_ANY | JSON_COMPACT);
    put_html(out, json_is_string(value) ? json_string_value(value) : text ? text : "");
    free(text);
}

static const Run *first_with_settings(const Results *results) {
    for (size_t i = 0; i < results->count; i++)
        if (results->runs[i].settings) return &results->runs[i];
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

static void put_options(FILE *out, const Results *results) {
    const Run *first = first_with_settings(results);
    const char *key;
    json_t *value;
    bool any = false;
    if (!first) return;
    fprintf(out, "<details><summary>Options%s</summary>\n<p class=\"options\">",
            results->count > 1 ? " that all runs share" : "");
    json_object_foreach(first->settings, key, value) {
        if (is_hidden(key) || json_is_null(value) || !all_have(results, key, value)) continue;
        fprintf(out, "%s<span>", any ? " " : "");
        put_html(out, key);
        fputs("&nbsp;", out);
        put_value(out, value);
        fputs("</span>", out);
        any = true;
    }
    fputs("</p></details>\n", out);
}

void put_machine(FILE *out, const Results *results) {
    size_t machines = 0;
    for (size_t i = 0; i < results->count; i++) machines += is_first(results, i);
    if (!machines && !results->command && !first_with_settings(results)) return;
    put_section(out, "Machine and method", NULL);
    for (size_t i = 0; i < results->count; i++)
        if (is_first(results, i)) put_entry(out, results, machine_of(&results->runs[i]), machines > 1);
    if (results->command) {
        fputs("<p class=\"lead\">To repeat it:</p>\n<pre>", out);
        put_html(out, results->command);
        fputs("</pre>\n", out);
    }
    put_options(out, results);
    fputs("</section>\n", out);
}
