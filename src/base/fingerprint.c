#include "base/fingerprint.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"

enum { PART = 1 << 16 };

static void close_file(int *fd) {
    if (*fd >= 0) close(*fd);
}

Status fingerprint_file(const char *path, uint64_t limit, Fingerprint *ret_print) {
    CLEANUP(close_file) int fd = open(path, O_RDONLY | O_CLOEXEC);
    CLEANUP(mem_freep) char *buffer = NULL;
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) return FAILED("%s: cannot open: %s", path, strerror(errno));
    TRY(mem_new(PART, 1, &buffer));
    uint64_t size = (uint64_t)info.st_size, parts = (size + PART - 1) / PART, read_parts = limit / PART;
    if (read_parts < 2 && limit) read_parts = 2;
    if (read_parts > parts) read_parts = parts;
    Fingerprint print = {.size = size};
    for (uint64_t i = 0; i < read_parts; i++) {
        uint64_t part = read_parts > 1 ? i * (parts - 1) / (read_parts - 1) : 0;
        ssize_t got = pread(fd, buffer, PART, (off_t)(part * PART));
        if (got < 0) return FAILED("%s: cannot read: %s", path, strerror(errno));
        print.crc = crc32c(print.crc, buffer, (size_t)got);
    }
    *ret_print = print;
    return OK;
}
