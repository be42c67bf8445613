/* Fuzzes sentence splitting: sentence ends increase, and the last one is the end of the text. */
#include "data/sentence.h"
#include "fuzz.h"

static int is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data;
    size_t from = 0;
    while (from < size) {
        size_t end = sentence_end(text, size, from);
        fuzz_require(end > from && end <= size);
        if (end < size) fuzz_require(is_space(text[end]) && !is_space(text[end - 1]));
        from = end;
    }
    size_t last = sentence_last_end(text, size);
    fuzz_require(last <= size);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "Mr. Smith met J. R. R. Tolkien in the U.S. He was 3.5 years older.",
        ("\"Why?\" John asked. (It was late.)[12] He left\xe2\x80\xa6 and came back.\n\nHeading\nText at 5 "
         "p.m. EST."),
        "1. First\n2. Second\r\n\r\n* a\n* b . . . \xc3\x89l lleg\xc3\xb3.\xe2\x80\x9d Yes",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
