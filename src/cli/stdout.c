#include "cli/stdout.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi.h"

/* errno may be that of a later call, so this asks the pipe itself. */
static bool reader_has_ended(void) {
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return errno == EPIPE || (poll(&output, 1, 0) == 1 && output.revents & POLLERR);
}

Status stdout_check(int error) {
    return error && error != EPIPE ? FAILED("standard output: cannot write: %s", strerror(error)) : OK;
}

Status stdout_failed(void) {
    int error = errno;
    if (!mpi_launched().launched && reader_has_ended()) _exit(0);
    return FAILED("standard output: cannot write: %s", strerror(error ? error : EIO));
}
