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
    snprintf(text, VERIFY_TEXT, "%s%s%s", what, parameter ? " of " : "", parameter ? parameter : "");
    if (limit > 0 && difference >= 0)
        text_append(text, VERIFY_TEXT, ": difference %.2g, limit %.2g", difference, limit);
    else
        text_append(text, VERIFY_TEXT, limit > 0 ? ": not finite" : ": not equal");
    if (json_int_at(failure, "step"))
        text_append(text, VERIFY_TEXT, ", step %lld", (long long)json_int_at(failure, "step"));
    return text;
}

const char *verify_ranks(const json_t *failure, char text[VERIFY_TEXT]) {
    enum { SHOWN = 16 };
    const json_t *ranks = json_object_get(failure, "ranks");
    size_t count = json_array_size(ranks);
    snprintf(text, VERIFY_TEXT, "on rank%s", PLURAL((long long)count));
    for (size_t i = 0; i < count && i < SHOWN; i++)
        text_append(text, VERIFY_TEXT, "%s %lld", i ? "," : "",
                    (long long)json_integer_value(json_array_get(ranks, i)));
    if (count > SHOWN) text_append(text, VERIFY_TEXT, " and %zu more", count - SHOWN);
    return text;
}

/* ---- the page ---- */

static void put_text_cell(Page *page, const char *text) {
    page_cell_open(page, "wide");
    page_put(page, "%s</td>", text);
}

/* A row that begins with its name. */
static void begin_row(Page *page, const char *name) {
    page_row(page, NULL);
    page_put(page, "%s", name);
}

static void put_number(Page *page, const json_t *row, const char *key) {
    const json_t *value = json_object_get(row, key);
    double limit = json_number_or(json_object_get(row, "limits"), key, 0);
    if (json_is_number(value))
        page_cell(page, "%.1e of %.0e", json_number_value(value), limit);
    else
        page_cell(page, "%s", value ? "not finite" : "");
}

static void put_checks(Page *page, const json_t *checks) {
    size_t i;
    json_t *row;
    page_section(page, "Checks",
                 "Each with the largest relative difference that occurred, and its limit: of a weight, what "
                 "rounding errors of gradients do not explain.");
    page_table(page, NULL, "check", "<precision", "cases", "failed", "loss", "gradient", "optimizer state",
               "weight", NULL);
    json_array_foreach(checks, i, row) {
        long long failed = json_int_at(row, "failed");
        begin_row(page, json_string_at(row, "check"));
        put_text_cell(page, json_string_at(row, "precision"));
        page_cell(page, "%lld", (long long)json_int_at(row, "cases"));
        page_cell_open(page, failed ? "failed" : NULL);
        page_put(page, "%lld</td>", failed);
        put_number(page, row, "loss");
        put_number(page, row, "gradient");
        put_number(page, row, "optimizer_state");
        put_number(page, row, "weight");
    }
    page_table_end(page);
}

static void put_failures(Page *page, const json_t *failures) {
    size_t i;
    json_t *failure;
    if (!json_array_size(failures)) return;
    page_section(page, "Failures", "The first step with a difference, and the ranks on which it was found.");
    page_table(page, NULL, "layout", "<difference", "<ranks", "<smallest layout", NULL);
    json_array_foreach(failures, i, failure) {
        char text[VERIFY_TEXT];
        begin_row(page, json_string_at(failure, "layout"));
        page_cell_open(page, "wide");
        page_put(page, "%s: %s</td>", json_string_at(failure, "check"), verify_what(failure, text));
        put_text_cell(page, verify_ranks(failure, text));
        put_text_cell(page, json_string_or(failure, "smallest", ""));
    }
    page_table_end(page);
}

static void put_link(Page *page, const char *name, const json_t *link) {
    char rate[FORMAT_SIZE];
    if (!json_is_object(link)) return;
    begin_row(page, name);
    page_cell(page, "%.1f us", json_number_at(link, "latency_us"));
    page_cell(page, "%s", format_rate(rate, 1e6 * json_number_at(link, "mbytes_per_s")));
}

static void put_links(Page *page, const json_t *links) {
    const json_t *within = json_object_get(links, "within"), *between = json_object_get(links, "between");
    if (!json_is_object(within) && !json_is_object(between)) return;
    page_section(page, "Links", "The slowest of each kind: latency of a message, and rate per direction.");
    page_table(page, NULL, "between ranks", "latency", "rate", NULL);
    put_link(page, "of one node", within);
    put_link(page, "of different nodes", between);
    page_table_end(page);
}

static void put_ranks(Page *page, const json_t *ranks) {
    size_t i;
    json_t *rank;
    page_section(page, "Ranks", NULL);
    page_table(page, NULL, "rank", "<host", "<device", NULL);
    json_array_foreach(ranks, i, rank) {
        page_row(page, NULL);
        page_put(page, "%zu", i);
        put_text_cell(page, json_string_at(rank, "host"));
        put_text_cell(page, json_string_at(rank, "device"));
    }
    page_table_end(page);
}

static Status put_body(Page *page, const void *data) {
    const json_t *result = data;
    bool ok = json_is_true(json_object_get(result, "ok"));
    char verdict[VERIFY_TEXT];
    size_t ranks = json_array_size(json_object_get(result, "ranks"));
    page_begin(page, "weft verify",
               ok ? "This machine trains correctly" : "This machine does not train correctly", NULL);
    put_chip(page, "%zu rank%s", ranks, PLURAL(ranks));
    page_header_end(page);
    page_verdict(page);
    page_put(page, "%s</p>\n", verify_verdict(result, verdict));
    put_failures(page, json_object_get(result, "failures"));
    put_checks(page, json_object_get(result, "checks"));
    put_links(page, json_object_get(result, "links"));
    put_ranks(page, json_object_get(result, "ranks"));
    page_end(page);
    return OK;
}

Status page_write_verify(const json_t *result, const char *path) {
    return page_save(path, put_body, result);
}
