/* A copy of a checkpoint in which the first value of a tensor is NaN. */
#ifndef WEFT_TESTS_CLI_WEIGHTS_H
#define WEFT_TESTS_CLI_WEIGHTS_H

#include <sys/stat.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/safetensors.h"
#include "test.h"

static inline void copy_with_nan(const char *from, const char *to, const char *tensor) {
    static const char *const names[] = {"config.json", "model.safetensors"};
    static const unsigned char nan[4] = {0xff, 0xff, 0xff, 0xff}; /* in fp16, bf16 and fp32 */
    char path[512];
    assert_int_equal(mkdir(to, 0777), 0);
    for (int i = 0; i < 2; i++) {
        CLEANUP(mem_freep) char *data = NULL;
        CLEANUP(safe_freep) SafeFile *file = NULL;
        size_t size;
        snprintf(path, sizeof path, "%s/%s", from, names[i]);
        assert_ok(file_read(path, 1 << 24, &data, &size));
        if (i) {
            assert_ok(safe_open(&file, path));
            const SafeTensor *last = safe_at(file, safe_count(file) - 1), *found = safe_find(file, tensor);
            assert_non_null(found);
            memcpy(data + size - (last->data + last->bytes - found->data), nan, sizeof nan);
        }
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        assert_ok(file_replace(path, data, size));
    }
}

#endif
