/* Fuzzes zip archives: an extracted member has the size given in the directory. */
#include <unistd.h>

#include "data/zip.h"
#include "fuzz.h"
#include "zip_make.h"

enum { ENOUGH = 1 << 20 };

static Status take(void *user, const void *data, size_t size) {
    size_t *taken = user;
    (void)data;
    *taken += size;
    return *taken > ENOUGH ? FAILED("enough") : OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "/tmp/weft-fuzz-XXXXXX";
    int fd = mkstemp(path);
    fuzz_require(fd >= 0);
    fuzz_require(write(fd, data, size) == (ssize_t)size);
    close(fd);
    CLEANUP(zip_freep) Zip *zip = NULL;
    if (fuzz_succeeded(zip_open(&zip, path)))
        for (size_t i = 0; i < zip_count(zip) && i < 8; i++) {
            size_t taken = 0, member;
            if (fuzz_succeeded(zip_unpack(zip, i, take, &taken)))
                fuzz_require(taken == (size_t)zip_size(zip, i));
            (void)fuzz_succeeded(zip_find(zip, zip_name(zip, i), &member));
        }
    unlink(path);
    return 0;
}

size_t fuzz_seed(size_t index, uint8_t *out) {
    static const char text[] = "a text of a few words, a text of a few more words, and an end";
    static ZipMaker zip;
    if (index > 2) return 0;
    zip = (ZipMaker){0};
    if (index != 1) zip_make_add(&zip, "folder/packed", text, sizeof text, 1);
    if (index != 2) zip_make_add(&zip, "stored", text, sizeof text, 0);
    zip_make_end(&zip);
    memcpy(out, zip.data, zip.size);
    return zip.size;
}
