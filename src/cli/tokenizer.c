/* weft tokenizer: the family of tokenizer commands. */
#include "cli/command.h"

const Command command_tokenizer = {
    .name = "tokenizer",
    .summary = "train tokenizers, encode and decode text",
    .description = "For the options of a command, see for example 'weft help tokenizer train'.",
    .family = true,
    .examples = {{"Train a byte-level BPE tokenizer like GPT-2's",
                  "weft tokenizer train --vocab 32000 --data corpus.txt --out tok"},
                 {"Tokenize a text", "weft tokenizer encode --tokenizer gpt2 --text 'Hello, world'"},
                 {"Decode tokens", "weft tokenizer decode --tokenizer gpt2 --ids '15496 11 995'"}},
};
