/* What the runs ran on, and the commands that repeat them. Runs on equal machines share an entry. */
#include <math.h>
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

/* ---- rows of an entry ---- */

static void put_row(FILE *out, const char *name, const char *text) {
    fprintf(out, "<dt>%s</dt><dd>", name);
    put_html(out, text);
    fputs("</dd>\n", out);
}

static void put_cpu(FILE *out, const json_t *machine) {
    char text[320], memory[FORMAT_SIZE];
    double cores = json_number_at(machine, "cores");
    snprintf(text, sizeof text, "%.120s, %.0f core%s, %s memory; SIMD %.30s, GEMM %.60s",
             json_string_or(machine, "cpu", "unknown"), cores, PLURAL(cores),
             format_bytes(memory, json_number_at(machine, "memory_bytes")),
             json_string_or(machine, "instruction_set", ""), json_string_or(machine, "matrix_library", ""));
    put_row(out, "Processor", text);
}

static void put_gpus(FILE *out, const json_t *machine) {
    const json_t *gpus = json_object_get(machine, "gpus"), *first = json_array_get(gpus, 0);
    char text[160], memory[FORMAT_SIZE];
    if (!first) return;
    snprintf(text, sizeof text, "%zu x %.80s, %s each", json_array_size(gpus),
             json_string_or(first, "name", "unknown"),
             format_bytes(memory, json_number_at(first, "memory_bytes")));
    put_row(out, "GPUs", text);
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

/* The MPI library of the runs on this machine that used one. */
static const char *mpi_of(const Results *results, const json_t *machine) {
    for (size_t i = 0; i < results->count; i++) {
        const json_t *other = machine_of(&results->runs[i]);
        const char *mpi = json_string_or(other, "mpi", "");
        if (other && *mpi && same_machine(other, machine)) return mpi;
    }
    return "";
}

/* The earliest and latest end of the runs on this machine; dates of this form sort as text. */
static void put_dates(FILE *out, const Results *results, const json_t *machine) {
    const char *first = "", *last = "";
    char text[96];
    for (size_t i = 0; i < results->count; i++) {
        const json_t *other = machine_of(&results->runs[i]);
        const char *date = json_string_or(other, "date", "");
        if (!other || !*date || !same_machine(other, machine)) continue;
        if (!*first || strcmp(date, first) < 0) first = date;
        if (strcmp(date, last) > 0) last = date;
    }
    if (!strncmp(first, last, 10))
        snprintf(text, sizeof text, "%.10s", first);
    else
        snprintf(text, sizeof text, "%.10s to %.10s", first, last);
    if (*first) put_row(out, "Date", text);
}

static void put_entry(FILE *out, const Results *results, const json_t *machine) {
    const char *mpi = mpi_of(results, machine);
    fputs("<dl>\n", out);
    put_cpu(out, machine);
    put_gpus(out, machine);
    put_hosts(out, machine);
    if (*mpi) put_row(out, "MPI", mpi);
    put_row(out, "weft", json_string_or(machine, "weft", "unknown"));
    put_dates(out, results, machine);
    fputs("</dl>\n", out);
}

/* ---- machines ---- */

/* Whether run `at` is the first on its machine. */
static bool is_first(const Results *results, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (machine_of(&results->runs[i]) &&
            same_machine(machine_of(&results->runs[i]), machine_of(&results->runs[at])))
            return false;
    return true;
}

static size_t count_machines(const Results *results) {
    size_t count = 0;
    for (size_t i = 0; i < results->count; i++)
        count += machine_of(&results->runs[i]) && is_first(results, i);
    return count;
}

/* The runs of a machine, if there are several machines. */
static void put_its_runs(FILE *out, const Results *results, const json_t *machine) {
    bool any = false;
    fputs("<h3>", out);
    for (size_t i = 0; i < results->count; i++) {
        const json_t *other = machine_of(&results->runs[i]);
        if (!other || !same_machine(other, machine)) continue;
        if (any) fputs(", ", out);
        put_html(out, results->runs[i].name);
        any = true;
    }
    fputs("</h3>\n", out);
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
    for (size_t i = 0; i < results->count; i++) {
        const Run *run = &results->runs[i];
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

static void put_commands(FILE *out, const Results *results) {
    if (!results->command) return;
    fputs("<p class=\"lead\">To repeat it:</p>\n<pre>", out);
    put_html(out, results->command);
    fputs("</pre>\n", out);
}

void put_machine(FILE *out, const Results *results) {
    size_t machines = count_machines(results);
    if (!machines && !results->command && !first_with_settings(results)) return;
    put_section(out, "Machine and method", NULL);
    for (size_t i = 0; i < results->count; i++) {
        const json_t *machine = machine_of(&results->runs[i]);
        if (!machine || !is_first(results, i)) continue;
        if (machines > 1) put_its_runs(out, results, machine);
        put_entry(out, results, machine);
    }
    put_commands(out, results);
    put_options(out, results);
    fputs("</section>\n", out);
}
