/* Fuzzes files of torch.save: all values of an accepted file are readable. */
#include <unistd.h>

#include "base/memory.h"
#include "checkpoint/torch_read.h"
#include "fuzz.h"

static char path[64];

static void clear_up(void) {
    unlink(path);
}

static Status read_file(void) {
    enum { MOST = 1 << 16 };
    CLEANUP(safe_freep) SafeFile *file = NULL;
    TRY(torch_open(&file, path));
    for (size_t i = 0; i < safe_count(file); i++) {
        const SafeTensor *tensor = safe_at(file, i);
        fuzz_require(tensor->ndim <= SAFE_DIMS && safe_find(file, tensor->name) == tensor);
        if (tensor->dtype > DT_F64) continue;
        int64_t count = (int64_t)(tensor->bytes / dtype_size(tensor->dtype)),
                some = count < MOST ? count : MOST;
        static float values[MOST];
        TRY(values_read(values, tensor, 0, some));
        TRY(values_read(values, tensor, count - some, some));
    }
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!path[0]) {
        snprintf(path, sizeof path, "/dev/shm/weft-fuzz-%d.bin", (int)getpid());
        atexit(clear_up);
    }
    FILE *file = fopen(path, "wb");
    fuzz_require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0);
    fuzz_succeeded(read_file());
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char *const names[] = {"state", "old", "nested", "module", "call"};
    CLEANUP(mem_freep) char *name = NULL, *data = NULL;
    size_t size = 0;
    if (index >= sizeof names / sizeof *names) return 0;
    fuzz_require(!str_format(&name, WEFT_TEST_DIR "/checkpoint/torch/%s.bin", names[index]));
    fuzz_require(!file_read(name, FUZZ_INPUT_LIMIT, &data, &size));
    memcpy(out, data, size);
    return size;
}
