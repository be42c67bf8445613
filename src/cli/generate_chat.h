/* weft generate --interactive: lines are prompts, each of which continues the text so far. */
#ifndef WEFT_CLI_GENERATE_CHAT_H
#define WEFT_CLI_GENERATE_CHAT_H

#include "infer/prompt.h"
#include "infer/text.h"

typedef struct ChatSpec {
    Engine *engine;
    const Tokenizer *tokenizer;
    const StopStrings *stops;
    const GenerateSpec *generate; /* prompts, sink and context are set for each line */
    const Prompt *first;          /* continued before the first line is read; NULL: none */
    bool add_special, skip_special;
} ChatSpec;

/* Reads lines from standard input until it ends (Ctrl-D). Ctrl-C stops a generation, or clears the line. An
 * empty line continues where the text stopped; /new starts over. */
MUST_USE Status chat_run(const ChatSpec *spec);

#endif
