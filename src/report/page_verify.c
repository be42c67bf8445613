#include "report/page_verify.h"

#include <string.h>

#include "base/format.h"
#include "report/page.h"

/* ---- words ---- */

static void count_cases(const json_t *result, long long *ret_cases, long long *ret_failed,
                        long long *ret_layouts) {
    size_t i;
    json_t *row;
    *ret_cases = *ret_failed = *ret_layouts = 0;
    json_array_foreach(json_object_get(result, "checks"), i, row) {
        *ret_cases += json_int_at(row, "cases");
        *ret_failed += json_int_at(row, "failed");
        if (!strcmp(json_string_at(row, "check"), "layouts")) *ret_layouts += json_int_at(row, "cases");
    }
}

const char *verify_verdict(const json_t *result, char text[VERIFY_TEXT]) {
    long long cases, failed, layouts, pairs = json_int_at(result, "pairs"),
                                      covered = json_int_at(result, "pairs_covered");
    int ranks = (int)json_array_size(json_object_get(result, "ranks"));
    double seconds = json_number_at(result, "seconds");
    count_cases(result, &cases, &failed, &layouts);
    char covers[128];
    if (covered == pairs)
        snprintf(covers, sizeof covers, "every pair of options occurred");
    else
        snprintf(covers, sizeof covers,
                 "%lld of %lld pairs of options occurred; a longer run covers the rest", covered, pairs);
    if (failed)
        snprintf(text, VERIFY_TEXT, "%lld of %lld checks FAILED on %d rank%s in %.0f s.", failed, cases,
                 ranks, PLURAL(ranks), seconds);
    else
        snprintf(text, VERIFY_TEXT, "All %lld checks passed on %d rank%s in %.0f s. Of %lld layout%s, %s.",
                 cases, ranks, PLURAL(ranks), seconds, layouts, PLURAL(layouts), covers);
    return text;
}

const char *verify_what(const json_t *failure, char text[VERIFY_TEXT]) {
    const char *what = json_string_at(failure, "what"),
               *parameter = json_string_or(failure, "parameter", NULL);
    double limit = json_number_at(failure, "limit"), difference = json_number_or(failure, "difference", -1);
    size_t used = (size_t)snprintf(text, VERIFY_TEXT, "%s%s%s", what, parameter ? " of " : "",
                                   parameter ? parameter : "");
    if (limit > 0 && difference >= 0)
        used += (size_t)snprintf(text + used, VERIFY_TEXT - used, ": difference %.2g, limit %.2g", difference,
                                 limit);
    else
        used += (size_t)snprintf(text + used, VERIFY_TEXT - used, limit > 0 ? ": not finite" : ": not equal");
    if (json_int_at(failure, "step"))
        snprintf(text + used, VERIFY_TEXT - used, ", step %lld", (long long)json_int_at(failure, "step"));
    return text;
}

const char *verify_ranks(const json_t *failure, char text[VERIFY_TEXT]) {
    enum { SHOWN = 16 };
    const json_t *ranks = json_object_get(failure, "ranks");
    size_t count = json_array_size(ranks), used;
    used = (size_t)snprintf(text, VERIFY_TEXT, "on rank%s", PLURAL((long long)count));
    for (size_t i = 0; i < count && i < SHOWN; i++)
        used += (size_t)snprintf(text + used, VERIFY_TEXT - used, "%s %lld", i ? "," : "",
                                 (long long)json_integer_value(json_array_get(ranks, i)));
    if (count > SHOWN) snprintf(text + used, VERIFY_TEXT - used, " and %zu more", count - SHOWN);
    return text;
}

/* ---- the page ---- */

/* `tag`: with its class, "td class=\"wide\"". */
static void put_text_cell(FILE *out, const char *tag, const char *text) {
    fprintf(out, "<%s>", tag);
    put_html(out, text);
    fprintf(out, "</%.2s>", tag);
}

#define NAME_CELL "th scope=\"row\""
#define TEXT_CELL "td class=\"wide\""

/* A row of texts, which end with NULL; the first names it. */
static void put_text_row(FILE *out, const char *const *texts) {
    fputs("<tr>", out);
    for (const char *const *text = texts; *text; text++)
        put_text_cell(out, text == texts ? NAME_CELL : TEXT_CELL, *text);
    fputs("</tr>\n", out);
}

static void put_number(FILE *out, const json_t *row, const char *key) {
    char text[64] = "";
    const json_t *value = json_object_get(row, key);
    double limit = json_number_or(json_object_get(row, "limits"), key, 0);
    if (value && !json_is_number(value)) snprintf(text, sizeof text, "not finite");
    if (json_is_number(value)) snprintf(text, sizeof text, "%.1e of %.0e", json_number_value(value), limit);
    fprintf(out, "<td>%s</td>", text);
}

static void put_checks(FILE *out, const json_t *checks) {
    size_t i;
    json_t *row;
    put_section(out, "Checks",
                "Each with the largest relative difference that occurred, and its limit: of a weight, what "
                "rounding errors of gradients do not explain.");
    put_table_open(out, NULL, "check", "<precision", "cases", "failed", "loss", "gradient", "optimizer state",
                   "weight", NULL);
    json_array_foreach(checks, i, row) {
        long long failed = json_int_at(row, "failed");
        fputs("<tr>", out);
        put_text_cell(out, NAME_CELL, json_string_at(row, "check"));
        put_text_cell(out, TEXT_CELL, json_string_at(row, "precision"));
        fprintf(out, "<td>%lld</td><td%s>%lld</td>", (long long)json_int_at(row, "cases"),
                failed ? " class=\"failed\"" : "", failed);
        put_number(out, row, "loss");
        put_number(out, row, "gradient");
        put_number(out, row, "optimizer_state");
        put_number(out, row, "weight");
        fputs("</tr>\n", out);
    }
    put_table_close(out);
    fputs("</section>\n", out);
}

static void put_failures(FILE *out, const json_t *failures) {
    size_t i;
    json_t *failure;
    if (!json_array_size(failures)) return;
    put_section(out, "Failures", "The first step with a difference, and the ranks on which it was found.");
    put_table_open(out, NULL, "layout", "<difference", "<ranks", "<smallest layout", NULL);
    json_array_foreach(failures, i, failure) {
        char text[VERIFY_TEXT], what[VERIFY_TEXT + 16];
        snprintf(what, sizeof what, "%s: %s", json_string_at(failure, "check"), verify_what(failure, text));
        put_text_row(out,
                     (const char *[]){json_string_at(failure, "layout"), what, verify_ranks(failure, text),
                                      json_string_or(failure, "smallest", ""), NULL});
    }
    put_table_close(out);
    fputs("</section>\n", out);
}

static void put_link(FILE *out, const char *name, const json_t *link) {
    char rate[FORMAT_SIZE];
    if (!json_is_object(link)) return;
    fputs("<tr>", out);
    put_text_cell(out, NAME_CELL, name);
    fprintf(out, "<td>%.1f us</td><td>%s</td></tr>\n", json_number_at(link, "latency_us"),
            format_rate(rate, 1e6 * json_number_at(link, "mbytes_per_s")));
}

static void put_links(FILE *out, const json_t *links) {
    const json_t *within = json_object_get(links, "within"), *between = json_object_get(links, "between");
    if (!json_is_object(within) && !json_is_object(between)) return;
    put_section(out, "Links", "The slowest of each kind: latency of a message, and rate per direction.");
    put_table_open(out, NULL, "between ranks", "latency", "rate", NULL);
    put_link(out, "of one node", within);
    put_link(out, "of different nodes", between);
    put_table_close(out);
    fputs("</section>\n", out);
}

static void put_ranks(FILE *out, const json_t *ranks) {
    size_t i;
    json_t *rank;
    put_section(out, "Ranks", NULL);
    put_table_open(out, NULL, "rank", "<host", "<device", NULL);
    json_array_foreach(ranks, i, rank) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        put_text_row(out, (const char *[]){number, json_string_at(rank, "host"),
                                           json_string_at(rank, "device"), NULL});
    }
    put_table_close(out);
    fputs("</section>\n", out);
}

static Status put_body(FILE *out, const void *data, Figures *drawn) {
    const json_t *result = data;
    bool ok = json_is_true(json_object_get(result, "ok"));
    char verdict[VERIFY_TEXT];
    size_t ranks = json_array_size(json_object_get(result, "ranks"));
    page_begin(out, "weft verify",
               ok ? "This machine trains correctly" : "This machine does not train correctly", NULL, false);
    put_chip(out, "%zu rank%s", ranks, PLURAL(ranks));
    page_header_end(out);
    fputs("<section class=\"verdict\">\n<p>", out);
    put_html(out, verify_verdict(result, verdict));
    fputs("</p>\n</section>\n", out);
    put_failures(out, json_object_get(result, "failures"));
    put_checks(out, json_object_get(result, "checks"));
    put_links(out, json_object_get(result, "links"));
    put_ranks(out, json_object_get(result, "ranks"));
    page_end(out, drawn);
    return OK;
}

Status page_write_verify(const json_t *result, const char *path) {
    return page_save(path, put_body, result);
}
