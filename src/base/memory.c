#include "base/memory.h"

#include <stdarg.h>
#include <string.h>

Status mem_new(size_t count, size_t size, void *ret_pointer) {
    size_t bytes;
    if (!mul_size(count, size, &bytes)) return FAILED("array of %zu x %zu bytes is too large", count, size);
    void *memory = calloc(1, bytes ? bytes : 1);
    if (!memory) return FAILED("out of memory: cannot allocate %zu bytes", bytes);
    *(void **)ret_pointer = memory;
    return OK;
}

Status mem_grow(void *array, size_t *capacity, size_t need, size_t size) {
    if (need <= *capacity) return OK;
    size_t wanted = *capacity ? *capacity : 8;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2) return FAILED("array of %zu entries is too large", need);
        wanted *= 2;
    }
    size_t bytes;
    if (!mul_size(wanted, size, &bytes)) return FAILED("array of %zu x %zu bytes is too large", wanted, size);
    void *grown = realloc(*(void **)array, bytes);
    if (!grown) return FAILED("out of memory: cannot allocate %zu bytes", bytes);
    memset((char *)grown + *capacity * size, 0, bytes - *capacity * size);
    *(void **)array = grown;
    *capacity = wanted;
    return OK;
}

Status str_dup(const char *text, char **ret_copy) {
    return str_format(ret_copy, "%s", text);
}

Status str_format(char **ret_text, const char *fmt, ...) {
    va_list args, copy;
    va_start(args, fmt);
    va_copy(copy, args);
    int length = vsnprintf(NULL, 0, fmt, copy);
    va_end(copy);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (text) vsnprintf(text, (size_t)length + 1, fmt, args);
    va_end(args);
    if (!text) return FAILED("out of memory");
    *ret_text = text;
    return OK;
}

Status bump_check(const Bump *bump, const char *what) {
    if (bump->base && bump->used > bump->size)
        return FAILED("internal: %s needs %zu bytes, but was given %zu", what, bump->used, bump->size);
    return OK;
}
