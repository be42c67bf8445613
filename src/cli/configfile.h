/* Configuration files: --config FILE.json. */
#ifndef WEFT_CLI_CONFIGFILE_H
#define WEFT_CLI_CONFIGFILE_H

#include "base/suggest.h"
#include "cli/command.h"

/* Sets the options in the file at call->config_path. */
MUST_USE Status configfile_apply(Invocation *call);
/* After the command line was parsed: checks that the fetched files still in use exist. */
MUST_USE Status configfile_check(const Invocation *call);

/* Sets the option `name` from the file's key `key`. Two keys for the same option must agree. */
MUST_USE Status configfile_set(Invocation *call, const char *name, const char *key, json_t *value);
MUST_USE Status configfile_unknown(const Invocation *call, const char *key);

/* Handles DeepSpeed's keys (deepspeed.c). *ret_taken is false if `key` is not one of them. */
MUST_USE Status deepspeed_take(Invocation *call, const char *key, json_t *value, bool *ret_taken);
bool deepspeed_has_key(const char *key); /* whether it is a top-level key */
void deepspeed_offer(Suggestion *suggestion);
/* After the command line was parsed: derives options from the final values, such as the missing one of batch,
 * micro-batch and accumulation. */
MUST_USE Status deepspeed_settle(Invocation *call);

/* Appends an entry to a list option (invocation.c). */
MUST_USE Status slot_append(Slot *slot, const char *label, const char *text);

#endif
