/* Fuzzes prompts: token ids are parsed exactly or rejected, each sequence has at least one token, and
 * sequences of the same prompt have different sample numbers. The input is a list of ids and, after a NUL,
 * text. */
#include "infer/prompt.h"

#include "fuzz.h"

enum { SAMPLES = 3 };

static void check_sequences(const PromptList *list) {
    for (size_t i = 0; i < list->used * SAMPLES; i++) {
        const Prompt *prompt = &list->prompts[i];
        fuzz_require(prompt->count >= 1 && prompt->ids == list->ids[i / SAMPLES]);
        for (int64_t j = 0; j < prompt->count; j++) fuzz_require(prompt->ids[j] >= 0);
        for (size_t k = 0; k < i; k++) {
            const Prompt *other = &list->prompts[k];
            fuzz_require(other->sequence != prompt->sequence || other->count != prompt->count ||
                         memcmp(other->ids, prompt->ids, (size_t)prompt->count * sizeof *prompt->ids));
        }
    }
}

/* Printing and parsing the ids again returns the same ids. */
static void check_numbers(const int32_t *ids, int64_t count) {
    char *text = malloc((size_t)count * 12 + 1), *end = text;
    fuzz_require(text);
    *end = 0;
    for (int64_t i = 0; i < count; i++) end += sprintf(end, "%s%d", i ? "," : "", (int)ids[i]);
    CLEANUP(prompt_list_done) PromptList again = {0};
    fuzz_require(fuzz_succeeded(prompt_list_add_ids(&again, text)));
    fuzz_require(again.used == 1 && again.count[0] == count);
    fuzz_require(count == 0 || memcmp(again.ids[0], ids, (size_t)count * sizeof *ids) == 0);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    fuzz_require(text);
    if (size) memcpy(text, data, size);
    text[size] = 0;
    size_t numbers = strlen(text), rest = numbers < size ? numbers + 1 : size;
    ModelConfig model = {.vocab = 257, .bos_token = -1, .eos_token = size % 2 ? 256 : 257};
    CLEANUP(tokenizer_freep) Tokenizer *tokenizer = NULL;
    CLEANUP(encoder_freep) Encoder *encoder = NULL;
    fuzz_require(fuzz_succeeded(tokenizer_new_bytes(&tokenizer, false)));
    fuzz_require(fuzz_succeeded(encoder_new(&encoder, tokenizer, NULL)));
    CLEANUP(prompt_list_done) PromptList list = {0};
    if (fuzz_succeeded(prompt_list_add_ids(&list, text))) check_numbers(list.ids[0], list.count[0]);
    fuzz_require(fuzz_succeeded(prompt_list_add_text(&list, encoder, text + rest, size - rest)));
    if (fuzz_succeeded(prompt_list_finish(&list, &model, NULL, SAMPLES))) check_sequences(&list);
    free(text);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const struct {
        const char *text;
        size_t size;
    } seeds[] = {{"1,2,3", 5}, {" 7, 0 2147483647 \0Once upon", 27}, {"\0\xff\xfe", 3}, {"50256", 5}};
    if (index >= sizeof seeds / sizeof *seeds) return 0;
    memcpy(out, seeds[index].text, seeds[index].size);
    return seeds[index].size;
}
