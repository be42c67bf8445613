/* How `weft generate` decodes tokens as they are sampled and prints them. Each sequence has a TextStream,
 * because a stop text may end the sequence. */
#ifndef WEFT_CLI_GENERATE_WRITING_H
#define WEFT_CLI_GENERATE_WRITING_H

#include <stdio.h>

#include "infer/generate.h"
#include "infer/text.h"

/* Prints a continuation piece by piece: text, or ids without a tokenizer. */
typedef struct Printer {
    FILE *out;
    bool terminal, started;
    size_t printed; /* bytes of the text printed so far */
} Printer;

Printer printer_of(FILE *out);
/* Prints what is new in `text`. */
void print_text(Printer *printer, const char *text, size_t size);
void print_number(Printer *printer, int32_t token);
/* Ends the line, if anything was printed. */
void print_end(const Printer *printer);

typedef struct Writing {
    const Tokenizer *tokenizer; /* NULL: print ids */
    const Prompt *prompts;
    const StopStrings *stops;
    TextStream *texts; /* one per sequence; NULL without a tokenizer */
    int64_t count;
    bool streams, skip_special;
    Printer printer;
} Writing;

/* Call after setting the other fields. */
MUST_USE Status writing_init(Writing *writing);
void writing_done(Writing *writing);
/* A TokenSink and a StopCheck; the context is the Writing. */
MUST_USE Status writing_take(void *context, int64_t prompt, int32_t token, bool *ret_stop);
MUST_USE Status writing_check_stop(void *context, const int32_t *ids, int64_t prompt_count, int64_t count,
                                   bool *ret_stop);
/* Completes all texts. */
MUST_USE Status writing_end(Writing *writing);

#endif
