/* Fuzzes extracting a text field from a JSON line: the result equals jansson's, and what jansson rejects is
 * rejected. jansson ignores a NUL after a number or a word; here, every NUL is rejected. */
#include <jansson.h>

#include "data/json_text.h"
#include "fuzz.h"

/* Whether jansson rejected the input because of its own limits: number range, nesting depth, NUL characters.
 */
static bool is_jansson_limit(const json_error_t *error) {
    enum json_error_code code = json_error_code(error);
    return code == json_error_numeric_overflow || code == json_error_stack_overflow ||
           code == json_error_null_byte_in_key || code == json_error_null_character;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *line = (const char *)data;
    json_error_t error;
    json_t *json = json_loadb(line, size, JSON_ALLOW_NUL, &error);
    CLEANUP(json_text_done) JsonText text = {0};
    /* The second call reuses the memory of the first. */
    for (int i = 0; i < 2; i++) {
        Status status = json_text_read(&text, line, size, "text", "input", "line", 7);
        bool ours = !status;
        if (size && memchr(line, 0, size))
            fuzz_require(!ours);
        else if (ours ||
                 (!strstr(status_message(status), "only once") && !strstr(status_message(status), "nesting")))
            fuzz_require((ours == json_is_object(json)) || (!json && is_jansson_limit(&error)));
        if (status) fuzz_require(strstr(status_message(status), "input: line 7, column "));
        fuzz_succeeded(status);
        if (!ours || !json) continue;
        const json_t *value = json_object_get(json, "text");
        fuzz_require(!text.text == !json_is_string(value));
        fuzz_require((text.text || text.found) == (value != NULL));
        if (!text.text) continue;
        fuzz_require(text.size == json_string_length(value));
        fuzz_require(!memcmp(text.text, json_string_value(value), text.size));
    }
    json_decref(json);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const seeds[] = {
        "{\"text\": \"a line of text, which is a little longer\", \"id\": 7}",
        "{\"text\":\"\\u00e9\\ud83d\\ude00\\n\\\"\\\\\\/\\b\\f\\r\\t\\u0000\", \"x\": [1, -2.5e+3, true, "
        "false, null]}",
        " { \"a\" : { \"text\" : [ [ ] , { } ] } , \"t\\u0065xt\" : \"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\" "
        "} \r",
        "{\"text\": 0.5}",
        "{}",
        "{\"text\": null, \"b\": \"\"}",
    };
    return index < sizeof seeds / sizeof *seeds ? fuzz_seed_text(seeds[index], out) : 0;
}
