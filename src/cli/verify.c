/* weft verify: does this machine, or this cluster, train correctly? */
#include "verify/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/fs.h"
#include "cli/launch.h"
#include "cli/train_options.h"
#include "report/page_verify.h"

typedef struct VerifyArgs {
    Settings settings;
    Layout layout;
    double time;
    const char *html;
} VerifyArgs;

/* clang-format off */
static const Option table[] = {
    {OPT_INT("ranks", VerifyArgs, layout.ranks), .fallback = "0", RANGE(1, 1 << 20),
     .shown = "what mpirun or srun started, else 1", .help = "Number of ranks, as in 'weft train'."},
    {OPT_TEXT("hosts", VerifyArgs, layout.hosts, "LIST"), .shown = "this host, or a batch system's", .per_rank = PER_RANK_ANY,
     .help = "Hosts on which --ranks starts ranks, with the number of ranks on each: node1:4,node2:4. They must "
             "accept ssh without a password and have weft under the same path."},
    {OPT_TEXT("hostfile", VerifyArgs, layout.hostfile, "FILE"), .shown = "none", .per_rank = PER_RANK_ANY,
     .help = "The same from a file for mpirun, with a line such as 'node1 slots=4' for each host."},
    {OPT_CHOICE("device", VerifyArgs, settings.device.name, "NAME", device_choices), .fallback = "cpu",
     .help = "Device: cpu, or cuda for NVIDIA GPUs, assigned round-robin to the ranks of a node."},
    {OPT_INT("threads", VerifyArgs, settings.device.threads), .per_rank = PER_RANK_ANY, .fallback = "0", RANGE(1, 4096),
     .shown = "OMP_NUM_THREADS, else all cores", .help = "CPU threads per rank."},
    {OPT_FLOAT("time", VerifyArgs, time), .fallback = "60", ABOVE_ZERO,
     .help = "Seconds for the layouts, approximately. Ends earlier when every pair of options has occurred; each "
             "rank's own runs are always complete."},
    {OPT_FLOAT("timeout", VerifyArgs, settings.fault.timeout), .fallback = "60", AT_LEAST(0),
     .help = "With several ranks, stop and say which ranks wait for which if none of them makes progress for "
             "this many seconds; 0: wait forever."},
    {OPT_TEXT("html", VerifyArgs, html, "FILE"), .shown = "none",
     .help = "Also write the result as a page."},
};
/* clang-format on */

/* WEFT_TEST_FLIP=RANK damages the memory of a rank, for tests. */
static int flipped_rank(void) {
    const char *rank = getenv("WEFT_TEST_FLIP");
    return rank && *rank ? atoi(rank) : -1;
}

static Status run(Invocation *call, void *arguments, json_t **ret_result) {
    VerifyArgs *args = arguments;
    bool here;
    if (args->html && path_is_dir(args->html))
        return USAGE("--html %s is a directory; expected a file", args->html);
    args->layout.tp = args->layout.pp = 1;
    TrainArgs train = {.config = args->settings, .layout = args->layout};
    train.config.ckpt.gather = true; /* a group for host data */
    /* Which algorithm is fastest does not matter here, and finding out takes long. */
    setenv("WEFT_CUDA_TUNE", "0", 0);
    TRY(layout_enter(call, &train, false, &here));
    if (!here) return OK;
    Group *world = train.config.run.mesh->world;
    if (!train.config.device.on) TRY(device_new_cpu(&call->device, (int)train.config.device.threads));
    VerifySpec spec = {.world = world,
                       .host = call->files ? call->files : world,
                       .device = call->device,
                       .kernels = args->settings.device.name,
                       .seconds = args->time,
                       .log = launch_log(call),
                       .flip = flipped_rank()};
    TRY(verify_run(&spec, ret_result));
    if (!json_is_true(json_object_get(*ret_result, "ok"))) call->exit_code = STATUS_FAILED;
    if (!args->html || world->rank > 0) return OK;
    CLEANUP(status_freep) Status unwritten = page_write_verify(*ret_result, args->html);
    if (!unwritten) return json_put(*ret_result, "html", json_string(args->html));
    /* What was found is worth more than its page. */
    fprintf(stderr, "weft: error: the page was not written: %s\n", status_message(unwritten));
    call->exit_code = STATUS_FAILED;
    return OK;
}

/* ---- for people ---- */

static const char *const kinds[] = {"loss", "gradient", "optimizer_state", "weight"};

static void show_checks(const json_t *checks, FILE *out) {
    size_t i;
    json_t *row;
    fprintf(out, "%-12s %-9s %6s %7s   %-10s %-10s %-10s %s\n", "check", "precision", "cases", "failed",
            "loss", "gradient", "optimizer", "weight");
    json_array_foreach(checks, i, row) {
        fprintf(out, "%-12s %-9s %6lld %7lld  ", json_string_at(row, "check"),
                json_string_at(row, "precision"), (long long)json_int_at(row, "cases"),
                (long long)json_int_at(row, "failed"));
        for (size_t k = 0; k < COUNT_OF(kinds); k++) {
            char text[32] = "";
            const json_t *value = json_object_get(row, kinds[k]);
            if (value)
                snprintf(text, sizeof text, json_is_number(value) ? "%.1e" : "not finite",
                         json_number_value(value));
            fprintf(out, " %-10s", text);
        }
        fputc('\n', out);
    }
}

static void show_failure(const json_t *failure, FILE *out) {
    char ranks[VERIFY_TEXT], what[VERIFY_TEXT];
    const char *smallest = json_string_or(failure, "smallest", NULL);
    fprintf(out, "FAILED %s: %s\n  %s %s\n", json_string_at(failure, "check"),
            json_string_at(failure, "layout"), verify_what(failure, what), verify_ranks(failure, ranks));
    if (smallest) fprintf(out, "  smallest layout that shows it: %s\n", smallest);
}

/* The first ones of each check; the others are in the JSON result. */
static void show_failures(const json_t *failures, FILE *out) {
    enum { SHOWN = 3 };
    const char *check = "";
    size_t i, of_check = 0;
    json_t *failure;
    json_array_foreach(failures, i, failure) {
        const json_t *next = json_array_get(failures, i + 1);
        if (strcmp(check, json_string_at(failure, "check"))) of_check = 0;
        check = json_string_at(failure, "check");
        if (++of_check <= SHOWN) show_failure(failure, out);
        if (of_check > SHOWN && (!next || strcmp(check, json_string_at(next, "check"))))
            fprintf(out, "  and %zu more of this check, see --json or --html\n", of_check - SHOWN);
    }
}

static void show_link(const char *what, const json_t *link, FILE *out) {
    char text[FORMAT_SIZE];
    if (json_is_object(link))
        fprintf(out, "%s: latency %.1f us, %s\n", what, json_number_at(link, "latency_us"),
                format_rate(text, 1e6 * json_number_at(link, "mbytes_per_s")));
}

static Status show(const Invocation *call, const json_t *result, FILE *out) {
    (void)call;
    size_t i;
    json_t *entry;
    char text[VERIFY_TEXT];
    json_array_foreach(json_object_get(result, "ranks"), i, entry) {
        fprintf(out, "rank %zu on %s: %s\n", i, json_string_at(entry, "host"),
                json_string_at(entry, "device"));
    }
    const json_t *links = json_object_get(result, "links");
    show_link("within a node", json_object_get(links, "within"), out);
    show_link("between nodes", json_object_get(links, "between"), out);
    fputc('\n', out);
    show_checks(json_object_get(result, "checks"), out);
    fputc('\n', out);
    show_failures(json_object_get(result, "failures"), out);
    fprintf(out, "%s\n", verify_verdict(result, text));
    if (json_object_get(result, "html")) fprintf(out, "page: %s\n", json_string_at(result, "html"));
    return OK;
}

const Command command_verify = {
    .name = "verify",
    .summary = "check that a machine or cluster trains correctly in every layout",
    .description =
        "Trains tiny models of every family for a few steps in every precision, and compares losses, "
        "gradients and weights: of each rank alone with plain reference kernels on its CPU and with the "
        "other ranks, then of parallel layouts with one rank. The layouts are chosen so that every pair of "
        "options occurs. Also repeats each of them for equal bits, compares copies of weights, moves "
        "checkpoints between layouts, and measures messages.\n"
        "Names the first parameter, step, layout and ranks that differ, and the smallest layout that shows "
        "it. Exit code 0: no differences; 1: there are some.",
    .config_size = sizeof(VerifyArgs),
    .groups = GROUPS(OPTION_GROUP("Options", table, 0)),
    .examples = {{"Four ranks on this machine", "weft verify --ranks 4"},
                 {"All GPUs of two nodes, with a page",
                  "weft verify --ranks 16 --hosts node1:8,node2:8 --device cuda --html verify.html"},
                 {"The ranks of a batch job, for ten minutes", "srun weft verify --device cuda --time 600"}},
    .run = run,
    .show = show,
};
