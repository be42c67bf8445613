/* weft tokenizer: the family of commands around vocabularies. */
#include "cli/command.h"

static const Example examples[] = {
    {"Learn a byte-level BPE vocabulary as GPT-2's",
     "weft tokenizer train --vocab 32000 --data corpus.txt --out tok"},
    {"The tokens of a text", "weft tokenizer encode --tokenizer gpt2 --text 'Hello, world'"},
    {"And back", "weft tokenizer decode --tokenizer gpt2 --ids '15496 11 995'"},
};

const Command command_tokenizer = {
    .name = "tokenizer",
    .summary = "learn vocabularies, turn text into tokens and back",
    .description = "'weft help tokenizer train' lists the options of a command.",
    .family = true,
    .examples = examples,
    .example_count = COUNT_OF(examples),
};
