/* Jinja, the part that chat templates use, with the results of jinja2 as transformers configures it
 * (trim_blocks, lstrip_blocks, loop controls, generation marks; no autoescape, an immutable sandbox).
 *
 *   statements  for (if, else, break, continue), if, set (blocks, namespaces), macro, call, filter, with,
 * raw, generation expressions all but bitwise ones; filters, tests and methods are the tables in filters*.c,
 * tests.c and methods.c functions   namespace, dict, range, raise_exception, strftime_now
 *
 * Anything else (include, extends, recursive loops, methods that change lists and dicts ...) is an error that
 * names it and its line. Templates come from files of unknown origin, so depth, time, memory and output are
 * bounded.
 */
#ifndef WEFT_CHAT_JINJA_H
#define WEFT_CHAT_JINJA_H

#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

typedef struct Jinja Jinja;

/* `name` is what messages call the template. */
MUST_USE Status jinja_parse(Jinja **ret_template, const char *text, size_t size, const char *name);
void jinja_free(Jinja *template);
DEFINE_FREEP(Jinja, jinja)
/* Whether it marks what the assistant writes, by generation blocks. */
bool jinja_has_marks(const Jinja *template);

typedef struct JinjaSpan {
    size_t start, end; /* bytes of the output */
} JinjaSpan;

typedef struct JinjaOutput {
    char *text; /* NUL-terminated, which `size` excludes */
    size_t size;
    JinjaSpan *marks; /* the output of generation blocks, in order */
    size_t mark_count;
} JinjaOutput;

void jinja_output_done(JinjaOutput *output);

/* `variables` is an object. `now` is the time (seconds since 1970) that strftime_now shows. */
MUST_USE Status jinja_render(const Jinja *template, const json_t *variables, int64_t now,
                             JinjaOutput *ret_output);

#endif
