/* Configuration files: --config FILE.json. */
#ifndef WEFT_CLI_CONFIGFILE_H
#define WEFT_CLI_CONFIGFILE_H

#include "cli/command.h"

enum { CONFIG_LIMIT = 16 << 20 /* bytes of a file */ };

/* Sets the options in the file at call->config_path, whose contents are call->file if they were read already.
 */
MUST_USE Status configfile_apply(Invocation *call);

/* Sets the option `name` from the file's key `key`. Two keys for the same option must agree. */
MUST_USE Status configfile_set(Invocation *call, const char *name, const char *key, json_t *value);
/* Forgets which key set the option, so that another may. */
void configfile_unset(Invocation *call, const char *name);
/* The error for an unknown key. */
MUST_USE Status configfile_unknown(const Invocation *call, const char *key);
/* Remembers an unknown key, to report all of them at once. */
MUST_USE Status configfile_note_unknown(Invocation *call, const char *key);

/* Appends an entry to a list option (invocation.c). */
MUST_USE Status slot_append(Slot *slot, const char *label, const char *text);

#endif
