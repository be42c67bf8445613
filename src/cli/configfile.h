/* Configuration files: --config FILE.json. */
#ifndef WEFT_CLI_CONFIGFILE_H
#define WEFT_CLI_CONFIGFILE_H

#include "base/suggest.h"
#include "cli/command.h"

/* Sets what the file at call->config_path says. */
MUST_USE Status configfile_apply(Invocation *call);
/* Once the line is read too: fetched files that are still meant must be there. */
MUST_USE Status configfile_check(const Invocation *call);

/* Sets the option `name` from the file's member `key`. Two keys that set one option must agree. */
MUST_USE Status configfile_set(Invocation *call, const char *name, const char *key, json_t *value);
MUST_USE Status configfile_unknown(const Invocation *call, const char *key);

/* DeepSpeed's keys (deepspeed.c). *ret_taken is false when `key` is not one of them. */
MUST_USE Status deepspeed_take(Invocation *call, const char *key, json_t *value, bool *ret_taken);
bool deepspeed_knows(const char *key); /* at the top of a file */
void deepspeed_offer(Suggestion *suggestion);
/* Once the line is read too: what follows from the final values. The batch is worked out from what was
 * given of batch, micro-batch and accumulation. */
MUST_USE Status deepspeed_settle(Invocation *call);

/* One more entry for a list (invocation.c). */
MUST_USE Status slot_append(Slot *slot, const char *label, const char *text);

#endif
