/* Fuzzes safetensors: every tensor of an accepted file is readable to its last byte, and the tensors fill the
 * data without gaps. Each input runs twice: as a file, and as header and data separated by a NUL, with a
 * correct length prepended so that mutations get past the length check. */
#include "checkpoint/safetensors.h"
#include "fuzz.h"

static void check_file(const SafeFile *file, const uint8_t *end) {
    const unsigned char *next = NULL;
    for (size_t i = 0; i < safe_count(file); i++) {
        const SafeTensor *tensor = safe_at(file, i);
        fuzz_require(!next || tensor->data == next);
        next = tensor->data + tensor->bytes;
        fuzz_require(next <= end);
        fuzz_require(tensor->ndim <= SAFE_DIMS);
        fuzz_require(safe_find(file, tensor->name) == tensor);
        volatile unsigned char sum = 0;
        for (size_t j = 0; j < tensor->bytes; j++) sum = (unsigned char)(sum + tensor->data[j]);
    }
    fuzz_require(safe_count(file) == 0 || next == end);
}

static void run_file(const uint8_t *data, size_t size) {
    CLEANUP(safe_freep) SafeFile *file = NULL;
    if (fuzz_succeeded(safe_parse(&file, data, size, "input"))) check_file(file, data + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    run_file(data, size);
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t header = nul ? (size_t)(nul - data) : size, rest = nul ? size - header - 1 : 0;
    uint8_t *whole = malloc(8 + header + rest);
    if (!whole) return 0;
    for (int i = 0; i < 8; i++) whole[i] = (uint8_t)(header >> (8 * i));
    if (header) memcpy(whole + 8, data, header);
    if (rest) memcpy(whole + 8 + header, nul + 1, rest);
    run_file(whole, 8 + header + rest);
    free(whole);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const struct {
        const char *header;
        size_t bytes;
    } seeds[] = {
        {"{}", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
         "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
         "\"c\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[26,26]},\"__metadata__\":{\"format\":"
         "\"pt\"}}",
         26},
        {"{\"x\":{\"data_offsets\":[0,8],\"dtype\":\"F64\",\"shape\":[1,1,1,1,1,1,1,1]}}   ", 8},
    };
    size_t kinds = sizeof seeds / sizeof *seeds;
    if (index >= 2 * kinds) return 0;
    size_t length = strlen(seeds[index % kinds].header), bytes = seeds[index % kinds].bytes;
    size_t start = index < kinds ? 8 : 0, part = index < kinds ? 0 : 1;
    memset(out, 0, start + length + part + bytes);
    if (start) out[0] = (uint8_t)length;
    memcpy(out + start, seeds[index % kinds].header, length);
    return start + length + part + bytes;
}
