/* Ranks that fail start again from the newest checkpoint, at first all of them. If they fail again before
 * they have saved another one, a rank or its host is probably broken: from then on fewer replicas start, the
 * next smaller divisor of --dp, and not on the hosts of ranks that failed. Micro-batches keep their size, so
 * that each replica accumulates the gradients of more of them; the batch and the loss curve stay. */
#include "cli/restarts.h"

#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "checkpoint/checkpoint.h"
#include "cli/hosts.h"
#include "train/job.h"

static int64_t number(const Invocation *call, const char *name) {
    const Slot *slot = invocation_slot(call, name);
    return slot ? *(const int64_t *)slot->field : 0;
}

/* The newest checkpoint; NULL if there is none or it cannot be found out. */
static char *find_checkpoint(const Invocation *call) {
    const Slot *out = invocation_slot(call, "out");
    const char *run = out ? *(const char *const *)out->field : NULL;
    char *dir = NULL;
    if (run) status_free(ckpt_latest(run, &dir));
    return dir;
}

Restarts restarts_new(const Invocation *call, int64_t ranks) {
    Restarts restarts = {.call = call, .ranks = ranks, .left = number(call, "max-restarts")};
    if (!restarts.left) return restarts;
    restarts.dp = number(call, "dp");
    restarts.checkpoint = find_checkpoint(call);
    return restarts;
}

void restarts_done(Restarts *restarts) {
    free(restarts->checkpoint);
    free(restarts->hosts);
}

static void add_number(Restarts *restarts, const char *option, int64_t value) {
    char *text = restarts->values[restarts->word_count / 2 % COUNT_OF(restarts->values)];
    snprintf(text, sizeof restarts->values[0], "%lld", (long long)value);
    restarts->words[restarts->word_count++] = option;
    restarts->words[restarts->word_count++] = text;
}

/* Groups of --shard replicas stay whole, or become smaller. */
static int64_t next_divisor(int64_t dp, int64_t shard) {
    for (int64_t d = dp - 1; d > 0; d--)
        if (dp % d == 0 && (!shard || d % shard == 0 || shard % d == 0)) return d;
    return dp;
}

/* The options of the next start. They follow those of the command line and so override them. */
static void set_words(Restarts *restarts) {
    const Invocation *call = restarts->call;
    int64_t shard = number(call, "shard"), micro = number(call, "micro-batch");
    restarts->word_count = 0;
    if (restarts->dp < number(call, "dp")) {
        if (!micro) micro = job_micro_batch(number(call, "batch"), number(call, "dp"), number(call, "pp"));
        add_number(restarts, "--ranks", restarts->ranks);
        add_number(restarts, "--dp", restarts->dp);
        add_number(restarts, "--batch", number(call, "batch"));
        add_number(restarts, "--micro-batch", micro);
        if (shard > restarts->dp) add_number(restarts, "--shard", restarts->dp);
    }
    if (!restarts->saved) return; /* a start from the beginning, or from where the command line says */
    restarts->words[restarts->word_count++] = "--resume";
    if (number(call, "resume-from")) restarts->words[restarts->word_count++] = "--resume-from=0";
}

static void warn(const Restarts *restarts, const Status failure, int64_t dp_before) {
    char fewer[96 + sizeof restarts->broken] = "";
    if (restarts->dp < dp_before)
        snprintf(fewer, sizeof fewer, " on %lld rank%s (dp %lld instead of %lld%s%s)",
                 (long long)restarts->ranks, PLURAL(restarts->ranks), (long long)restarts->dp,
                 (long long)dp_before, restarts->hosts ? ", without" : "",
                 restarts->hosts ? restarts->broken : "");
    fprintf(stderr, "weft: warning: %s%s; restarting%s from the %s, %lld restart%s left\n",
            failure ? status_message(failure) : "the ranks failed",
            *fewer ? ", again without a new checkpoint" : "", fewer,
            restarts->checkpoint ? "newest checkpoint" : "beginning", (long long)restarts->left,
            PLURAL(restarts->left));
}

static void add_broken(Restarts *restarts, const char *host) {
    size_t used = strlen(restarts->broken), size = strlen(host);
    for (const char *at = restarts->broken; size && (at = strstr(at, host)); at++)
        if (at[-1] == ' ' && (!at[size] || at[size] == ' ')) return;
    if (size && used + size + 2 < sizeof restarts->broken)
        snprintf(restarts->broken + used, sizeof restarts->broken - used, " %s", host);
}

bool restarts_next(Restarts *restarts, const Status failure, const char *host) {
    if (!restarts->left) return false;
    char *newest = find_checkpoint(restarts->call);
    bool moved = newest && (!restarts->checkpoint || strcmp(newest, restarts->checkpoint));
    free(restarts->checkpoint);
    restarts->checkpoint = newest;
    restarts->failures = moved ? 1 : restarts->failures + 1;
    restarts->saved |= moved;
    if (moved && !restarts->hosts) restarts->broken[0] = 0;
    add_broken(restarts, host);
    int64_t dp = restarts->dp;
    if (restarts->failures > 1) {
        restarts->dp = next_divisor(dp, number(restarts->call, "shard"));
        restarts->ranks = restarts->ranks / dp * restarts->dp;
        char *hosts = NULL;
        status_free(hosts_without(restarts->call, restarts->broken, restarts->ranks, &hosts));
        free(restarts->hosts);
        restarts->hosts = hosts;
    }
    restarts->left--;
    set_words(restarts);
    warn(restarts, failure, dp);
    return true;
}
