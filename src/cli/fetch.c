/* weft fetch: downloads datasets, tokenizers and weights. */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/format.h"
#include "base/fs.h"
#include "base/memory.h"
#include "cli/command.h"
#include "cli/show.h"
#include "cli/stop.h"
#include "data/fetch.h"
#include "data/http.h"

typedef struct FetchArgs {
    const char *out, **from;
    int from_count;
    bool list, quiet;
    double timeout;
    int64_t retries;
} FetchArgs;

/* clang-format off */
static const Option table[] = {
    {OPT_TEXT("out", FetchArgs, out, "DIR"), .shown = "$WEFT_DATA, else data in the cache directory",
     .help = "Directory in which each set gets a subdirectory."},
    {OPT_LIST("from", FetchArgs, from, "DIR"), .one_each = true, .shown = "each set's official URL, then its mirrors",
     .help = "Mirror to read from: a directory or an http(s) URL with one subdirectory per set, laid out as "
             "in --out. The files of a single set may also be at the top level. Repeat for several mirrors, "
             "tried in this order."},
    {OPT_FLAG("list", FetchArgs, list), .help = "List all sets with sizes, licenses, URLs and checksums."},
    {OPT_FLOAT("timeout", FetchArgs, timeout), .fallback = "60", ABOVE_ZERO,
     .help = "Give up on a connection after this many seconds without data."},
    {OPT_INT("retries", FetchArgs, retries), .fallback = "5", RANGE(0, 1000),
     .help = "Retries after a dropped connection or a busy server."},
    {OPT_FLAG("quiet", FetchArgs, quiet), .help = "Do not show progress."},
};
/* clang-format on */

/* ---- the list ---- */

static json_t *file_row(const FetchFile *file) {
    json_t *members = json_array();
    for (const char *const *name = file->members; members && name && *name; name++)
        json_array_append_new(members, json_string(*name));
    return json_pack("{s:s, s:o, s:s?, s:o}", "name", file->name, "size",
                     file->size ? json_integer(file->size) : json_null(), "sha256", file->sha256, "members",
                     members);
}

/* Total download size of a set; null if the size of a file is unknown. */
static json_t *set_size(const FetchSet *set) {
    int64_t sum = 0;
    for (size_t i = 0; i < set->file_count; i++) {
        if (!set->files[i].size) return json_null();
        sum += set->files[i].size;
    }
    return json_integer(sum);
}

/* Base URLs of mirrors, and URLs of single files. */
static json_t *mirror_rows(const FetchSet *set) {
    size_t count;
    const FetchMirror *mirrors = fetch_mirrors(&count);
    json_t *rows = json_array();
    for (size_t i = 0; rows && i < count; i++) {
        const char *rest = fetch_mirrored(&mirrors[i], set->home);
        if (rest) json_array_append_new(rows, json_sprintf("%s%s", mirrors[i].at, rest));
        for (size_t f = 0; f < set->file_count; f++)
            if (set->files[f].sha256 && !strcmp(mirrors[i].of, set->files[f].sha256))
                json_array_append_new(rows, json_string(mirrors[i].at));
    }
    return rows;
}

static Status list(json_t **ret_result) {
    size_t count;
    const FetchSet *sets = fetch_sets(&count);
    CLEANUP(json_decrefp) json_t *rows = json_array();
    for (size_t i = 0; i < count; i++) {
        json_t *files = json_array();
        for (size_t f = 0; files && f < sets[i].file_count; f++)
            json_array_append_new(files, file_row(&sets[i].files[f]));
        json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:o}", "name", sets[i].name, "title",
                                sets[i].title, "licence", sets[i].licence, "home", sets[i].home, "mirrors",
                                mirror_rows(&sets[i]), "size", set_size(&sets[i]), "about",
                                (json_int_t)sets[i].about, "files", files);
        if (!row || json_array_append_new(rows, row) != 0)
            return FAILED("out of memory while listing the sets");
    }
    json_t *result = json_pack("{s:O}", "sets", rows);
    if (!result) return FAILED("out of memory while listing the sets");
    *ret_result = result;
    return OK;
}

/* "4.4 MB", or "~4.4 MB" if it is approximate. */
static const char *size_text(const json_t *set, char *buffer, size_t capacity) {
    char bytes[FORMAT_SIZE];
    bool exact = json_is_integer(json_object_get(set, "size"));
    double size = (double)json_int_at(set, exact ? "size" : "about");
    snprintf(buffer, capacity, "%s%s", exact ? "" : "~", format_bytes(bytes, size));
    return buffer;
}

static bool all_published(const json_t *files) {
    size_t i;
    json_t *file;
    json_array_foreach(files, i, file) if (!json_is_string(json_object_get(file, "sha256"))) return false;
    return true;
}

static void show_list(const json_t *sets, FILE *out) {
    size_t i, k;
    json_t *set, *mirror;
    bool unproven = false;
    json_array_foreach(sets, i, set) {
        const json_t *files = json_object_get(set, "files");
        char size[FORMAT_SIZE + 1];
        bool published = all_published(files);
        unproven |= !published;
        fprintf(out, "%-28s %9s%s  %s\n%43s%s; %s\n", json_string_at(set, "name"),
                size_text(set, size, sizeof size), published ? " " : "*", json_string_at(set, "title"), "",
                json_string_at(set, "licence"), json_string_at(set, "home"));
        json_array_foreach(json_object_get(set, "mirrors"), k, mirror)
            fprintf(out, "%43smirror: %s\n", "", json_string_value(mirror));
    }
    if (unproven)
        fprintf(out,
                "\n* some checksums are not published; the first fetch records them and later fetches verify "
                "them\n");
}

/* ---- fetching ---- */

#define WIKITEXT_NEXT(suffix)                                                                                \
    "weft train --data DIR/wiki.train." suffix " --val DIR/wiki.valid." suffix                               \
    " --model gpt2-mini --out runs/wikitext"
#define SQUAD_NEXT(version)                                                                                  \
    "weft train --task squad --model DIR/../bert-base-uncased --data DIR/train-" version                     \
    ".json --val DIR/dev-" version ".json --lr 3e-5 --out runs/squad (after 'weft fetch bert-base-uncased')"

/* Suggested next commands for sets; DIR stands for the set's directory. */
static const struct {
    const char *sets, *next;
} next_commands[] = {
    {"tinyshakespeare", "weft train --data DIR/input.txt --model gpt2-mini --out runs/shakespeare"},
    {"wikitext-2 wikitext-103", WIKITEXT_NEXT("tokens")},
    {"wikitext-2-raw wikitext-103-raw", WIKITEXT_NEXT("raw")},
    {"squad-v1.1", SQUAD_NEXT("v1.1")},
    {"squad-v2", SQUAD_NEXT("v2.0")},
    {"cornell", "weft train --model bert-small --tokenizer DIR/../bert-base-uncased-tokenizer --data "
                "DIR/movie_lines.txt DIR/movie_conversations.txt --no-masked-tokens --seq 64 --out "
                "runs/dialogues (after 'weft fetch bert-base-uncased-tokenizer')"},
    {"gpt2-tokenizer bert-base-uncased-tokenizer",
     "weft tokenizer encode --tokenizer DIR --text 'Hello, world'"},
    {"gpt2 gpt2-medium gpt2-large gpt2-xl tinyllama-1.1b-chat mistral-7b qwen3-0.6b",
     "weft generate --model DIR --prompt 'The meaning of life is'"},
    {"bert-base-uncased bert-large-uncased", "weft info DIR"},
    {"smollm2-135m llama-3.2-1b qwen2.5-0.5b",
     "weft train --model DIR --data FILE --seq 512 --lr 2e-5 --out runs/tuned"},
};

/* Whether one of the words, which spaces separate, is `name`. */
static bool is_among(const char *name, const char *words) {
    size_t length = strlen(name);
    for (const char *at = words; (at = strstr(at, name)); at += length)
        if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return true;
    return false;
}

/* The set's suggested next command, with DIR replaced by its directory; NULL: none. */
static Status next_command(const FetchSet *set, const char *dir, char **ret_line) {
    const char *next = NULL;
    for (size_t i = 0; i < COUNT_OF(next_commands); i++)
        if (is_among(set->name, next_commands[i].sets)) next = next_commands[i].next;
    if (!next) return OK;
    CLEANUP(mem_freep) char *line = NULL;
    size_t size = 0;
    FILE *text = open_memstream(&line, &size);
    if (!text) return FAILED("out of memory while fetching %s", set->name);
    for (const char *at = next, *found; at; at = found ? found + 3 : NULL) {
        found = strstr(at, "DIR");
        fprintf(text, "%.*s", found ? (int)(found - at) : (int)strlen(at), at);
        if (found) show_word(text, dir);
    }
    if (fclose(text) != 0) return FAILED("out of memory while fetching %s", set->name);
    *ret_line = line;
    line = NULL;
    return OK;
}

static Status set_result(const FetchSet *set, const Fetched *fetched, json_t **ret_row) {
    CLEANUP(mem_freep) char *next = NULL;
    CLEANUP(json_decrefp) json_t *files = json_array();
    TRY(next_command(set, fetched->dir, &next));
    for (size_t i = 0; i < fetched->count; i++) {
        const FetchedFile *file = &fetched->files[i];
        json_t *row = json_pack("{s:s, s:s, s:s?, s:I, s:I, s:s, s:s, s:b}", "name", file->name, "path",
                                file->path, "from", file->from, "size", (json_int_t)file->size, "received",
                                (json_int_t)file->received, "sha256", file->sha256, "checked",
                                fetch_proof_names[file->proof], "was_there", file->was_there);
        if (!row || json_array_append_new(files, row) != 0) return FAILED("out of memory");
    }
    json_t *row = json_pack("{s:s, s:s, s:O, s:s?}", "name", set->name, "dir", fetched->dir, "files", files,
                            "next", next);
    if (!row) return FAILED("out of memory while fetching %s", set->name);
    *ret_row = row;
    return OK;
}

static Status fetch_one(const FetchSet *set, const FetchSpec *spec, json_t *rows) {
    CLEANUP(fetched_done) Fetched fetched = {0};
    json_t *row = NULL;
    TRY(fetch_set(set, spec, &fetched));
    TRY(set_result(set, &fetched, &row));
    return json_array_append_new(rows, row) == 0 ? OK : FAILED("out of memory");
}

static Status check_mirror(const char *from) {
    if (strstr(from, "://") && !http_is_url(from))
        return USAGE("--from %s: expected a directory or a URL that starts with http:// or https://", from);
    return http_is_url(from) || path_is_dir(from) ? OK : FAILED("--from %s: not a directory", from);
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    const FetchArgs *args = arguments;
    if (args->list && call->operand_count)
        return USAGE("--list shows all sets; remove '%s'", call->operands[0]);
    if (args->list) return list(ret_result);
    if (!call->operand_count) return USAGE("missing set name; 'weft fetch --list' lists all sets");
    for (int i = 0; i < args->from_count; i++) TRY(check_mirror(args->from[i]));
    CLEANUP(mem_freep) char *root = NULL;
    CLEANUP(json_decrefp) json_t *rows = json_array();
    TRY(args->out ? str_dup(args->out, &root) : fetch_root(&root));
    const FetchSet *set;
    size_t mirror_count;
    for (size_t i = 0; i < call->operand_count; i++) TRY(fetch_find(call->operands[i], &set));
    FetchSpec spec = {.root = root,
                      .from = args->from,
                      .from_count = args->from_count,
                      .mirrors = fetch_mirrors(&mirror_count),
                      .from_flat = call->operand_count == 1,
                      .timeout_s = args->timeout,
                      .retries = (int)args->retries,
                      .backoff_s = 1,
                      .log = stderr,
                      .quiet = args->quiet,
                      .stop = stop_catch(0)};
    spec.mirror_count = mirror_count;
    double start = clock_wall();
    for (size_t i = 0; i < call->operand_count; i++) {
        TRY(fetch_find(call->operands[i], &set));
        TRY(fetch_one(set, &spec, rows));
    }
    json_t *result = json_pack("{s:O, s:f}", "sets", rows, "seconds", clock_wall() - start);
    if (!result) return FAILED("out of memory");
    *ret_result = result;
    return OK;
}

/* A remark on how the checksum was verified; empty for a published one. */
static const char *remark(const json_t *file) {
    const char *checked = json_string_at(file, "checked");
    if (checked && !strcmp(checked, "first"))
        return ", not verified: no SHA-256 is published, the file's is recorded";
    if (checked && !strcmp(checked, "stated")) return ", SHA-256 verified against the server";
    if (checked && !strcmp(checked, "recorded")) return ", SHA-256 verified against the first fetch";
    return "";
}

/* Where a file came from, if it is neither official nor what the user named. */
static void show_source(const FetchArgs *args, const char *set_name, const char *from, FILE *out) {
    const FetchSet *set;
    Status status = fetch_find(set_name, &set);
    bool official = status || !from || args->from_count || !strncmp(from, set->home, strlen(set->home));
    if (!official) fprintf(out, ", from %s", from);
    status_free(status);
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    const FetchArgs *args = call->config;
    const json_t *sets = json_object_get(result, "sets");
    size_t i, f;
    json_t *set, *file;
    char bytes[FORMAT_SIZE];
    if (args->list) {
        show_list(sets, out);
        return OK;
    }
    json_array_foreach(sets, i, set) {
        fprintf(out, "%s is in %s\n", json_string_at(set, "name"), json_string_at(set, "dir"));
        json_array_foreach(json_object_get(set, "files"), f, file) {
            fprintf(out, "  %-24s %9s%s%s", json_string_at(file, "name"),
                    format_bytes(bytes, (double)json_int_at(file, "size")),
                    json_is_true(json_object_get(file, "was_there")) ? ", already present" : "",
                    remark(file));
            show_source(args, json_string_at(set, "name"), json_string_at(file, "from"), out);
            fputc('\n', out);
        }
        const char *next = json_string_at(set, "next");
        if (next) fprintf(out, "next: %s\n", next);
    }
    return OK;
}

const Command command_fetch = {
    .name = "fetch",
    .summary = "download datasets, tokenizers and weights",
    .description =
        "Downloads datasets, tokenizers and released weights from their official URLs, or from mirrors of "
        "these "
        "if a host fails or sends a damaged file; --list shows them. "
        "An interrupted download resumes. A file gets its final name only when it is complete and its "
        "SHA-256 is correct. If no checksum is published, the first fetch records it in fetched.json next "
        "to the file, and later fetches verify it. Zip archives are unpacked. Existing files are verified, "
        "not downloaded again.\n\n"
        "Transfers use libcurl, with the proxies in http_proxy and https_proxy and the certificates in "
        "CURL_CA_BUNDLE. --from DIR works without libcurl.",
    .operands = "[NAME...]",
    .operands_max = 1000,
    .config_size = sizeof(FetchArgs),
    .groups = GROUPS(OPTION_GROUP("Options", table, 0)),
    .examples = {{"A small text to train on", "weft fetch tinyshakespeare"},
                 {"The released GPT-2 and WikiText-103, into your own directory",
                  "weft fetch gpt2 wikitext-103 --out data"},
                 {"Import files from a USB drive", "weft fetch squad-v2 --from /media/usb"}},
    .run = run,
    .show = show,
};
