/* Ranks that are stopped, paused, killed, disconnected or fail in the middle of a run of two ranks: the run
 * ends, and says which rank and why. The same over MPI and, with WEFT_TEST_DEVICE=cuda, over NCCL in several
 * layouts. */
#include "launched.h"

#include <dirent.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/fs.h"

static int setup(void **state) {
    if (test_on_cuda() && setenv("WEFT_TEST_GROUPS", "nccl", 1)) return -1;
    return launched_setup(state);
}

/* Every kind of wait: for gradients, for activations of a layer, for another stage, for parameters. */
static const char *const layouts[] = {"--dp 2", "--tp 2", "--pp 2 --micro-batch 2 --layers 2", "--zero 3"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void open_layout(Launch *launch, const char *name, int layout) {
    char out[128];
    snprintf(out, sizeof out, "%s-%d %s --timeout 6", name, layout, layouts[layout]);
    launch_open(launch, out);
}

static int layout_count(void) {
    return test_on_cuda() ? LAYOUTS : 1;
}

/* A process that was killed may take a moment to disappear. */
static void assert_gone(const Launch *launch) {
    for (int r = 0; r < 2; r++) {
        for (int i = 0; i < 200 && kill(launch->rank[r], 0) == 0; i++) usleep(50000);
        assert_int_not_equal(kill(launch->rank[r], 0), 0);
    }
}

/* A rank that is stopped does not hang the other, and is named. */
static void stopped_rank_is_named(void **state) {
    if (!mpi_built()) skip();
    for (int i = 0; i < layout_count(); i++) {
        Launch launch;
        char part[96];
        open_layout(&launch, "hung", i);
        kill(launch.rank[1], SIGSTOP);
        assert_int_equal(terminal_close(&launch.terminal), 1);
        assert_contains(launch.terminal.seen, "no progress for ");
        assert_contains(launch.terminal.seen, " waits in ");
        snprintf(part, sizeof part, "never arrived and does not answer: process %d is stopped (SIGSTOP)",
                 (int)launch.rank[1]);
        assert_contains(launch.terminal.seen, part);
        assert_gone(&launch);
    }
}

/* A rank that is stopped for less than the limit does no harm. */
static void paused_rank_continues(void **state) {
    if (!mpi_built()) skip();
    Launch launch;
    open_layout(&launch, "paused", 0);
    kill(launch.rank[1], SIGSTOP);
    sleep(2);
    kill(launch.rank[1], SIGCONT);
    type(&launch.terminal, "");
    assert_reads(&launch.terminal, "/1000000   0%  loss ");
    kill(launch.rank[0], SIGTERM);
    assert_int_equal(terminal_close(&launch.terminal), SAVED);
    assert_contains(launch.terminal.seen, "weft: stopped after step ");
    assert_true(path_exists(at("paused-0/latest")));
}

static void killed_rank_ends_all(void **state) {
    if (!mpi_built()) skip();
    for (int i = 0; i < layout_count(); i++) {
        Launch launch;
        open_layout(&launch, "killed", i);
        kill(launch.rank[1], SIGKILL);
        assert_int_equal(terminal_close(&launch.terminal), 1);
        assert_contains(launch.terminal.seen, "error");
        assert_gone(&launch);
    }
}

/* If one rank fails, all end, with its error. */
static void failed_rank_ends_all(void **state) {
    if (!mpi_built()) skip();
    static const struct rlimit small = {1000, 1000};
    for (int i = 0; i < layout_count(); i++) {
        Launch launch;
        char out[128];
        snprintf(out, sizeof out, "failed-%d %s --save-every 4", i, layouts[i]);
        launch_open(&launch, out);
        assert_int_equal(prlimit(launch.rank[1], RLIMIT_FSIZE, &small, NULL), 0);
        assert_int_equal(terminal_close(&launch.terminal), 1);
        assert_contains(launch.terminal.seen, "error: rank ");
        assert_contains(launch.terminal.seen, "rank 1 on ");
        assert_contains(launch.terminal.seen, "cannot write: File too large");
        assert_gone(&launch);
    }
}

/* Ctrl-C and SIGTERM in the middle of a step, over NCCL; test_stop.c has the same over MPI. */
static void stopped_run_saves(void **state) {
    if (!mpi_built() || !test_on_cuda()) skip();
    for (int i = 0; i < 2 * layout_count(); i++) {
        Launch launch;
        char saved[64];
        open_layout(&launch, i % 2 ? "terminated" : "interrupted", i / 2);
        if (i % 2)
            kill(launch.terminal.child, SIGTERM);
        else
            type(&launch.terminal, "\003");
        assert_int_equal(terminal_close(&launch.terminal), SAVED);
        assert_contains(launch.terminal.seen, "weft: stopped after step ");
        snprintf(saved, sizeof saved, "%s-%d/latest", i % 2 ? "terminated" : "interrupted", i / 2);
        assert_true(path_exists(at(saved)));
        assert_gone(&launch);
    }
}

/* ---- connections ---- */

typedef struct Sockets {
    int fd[256], port[256], peer[256];
    int count;
} Sockets;

/* Duplicates of a process's TCP connections, with the ports of both ends. */
static void sockets_of(pid_t process, Sockets *ret_sockets) {
    char path[64];
    int handle = (int)syscall(SYS_pidfd_open, process, 0);
    assert_true(handle >= 0);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    ret_sockets->count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) && ret_sockets->count < 256;) {
        struct sockaddr_in own = {0}, other = {0};
        socklen_t size = sizeof own, others = sizeof other;
        int number = atoi(entry->d_name), fd = (int)syscall(SYS_pidfd_getfd, handle, number, 0);
        if (entry->d_name[0] == '.' || fd < 0) continue;
        if (getsockname(fd, (struct sockaddr *)&own, &size) || own.sin_family != AF_INET ||
            getpeername(fd, (struct sockaddr *)&other, &others)) {
            close(fd);
            continue;
        }
        int at = ret_sockets->count++;
        ret_sockets->fd[at] = fd;
        ret_sockets->port[at] = ntohs(own.sin_port);
        ret_sockets->peer[at] = ntohs(other.sin_port);
    }
    closedir(dir);
    close(handle);
}

/* Shuts down the connections between two processes; returns their number. */
static int cut_connections(pid_t first, pid_t second) {
    static Sockets a, b;
    int count = 0;
    sockets_of(first, &a);
    sockets_of(second, &b);
    for (int i = 0; i < a.count; i++)
        for (int j = 0; j < b.count; j++)
            if (a.port[i] == b.peer[j] && a.peer[i] == b.port[j]) count += shutdown(a.fd[i], SHUT_RDWR) == 0;
    for (int i = 0; i < a.count; i++) close(a.fd[i]);
    for (int j = 0; j < b.count; j++) close(b.fd[j]);
    return count;
}

/* NCCL reports the error, and the watchdog need not wait. On one host, ranks have no other connections. */
static void broken_connection_is_reported(void **state) {
    if (!mpi_built() || !test_on_cuda()) skip();
    for (int i = 0; i < layout_count(); i++) {
        Launch launch;
        open_layout(&launch, "cut", i);
        assert_true(cut_connections(launch.rank[0], launch.rank[1]) > 0);
        assert_int_equal(terminal_close(&launch.terminal), 1);
        assert_contains(launch.terminal.seen, "error: rank ");
        assert_contains(launch.terminal.seen, " NCCL: ");
        assert_null(strstr(launch.terminal.seen, "no progress for "));
        assert_gone(&launch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_rank_is_named), cmocka_unit_test(paused_rank_continues),
        cmocka_unit_test(killed_rank_ends_all),  cmocka_unit_test(failed_rank_ends_all),
        cmocka_unit_test(stopped_run_saves),     cmocka_unit_test(broken_connection_is_reported),
    };
    if (getenv("WEFT_TEST_FILTER")) cmocka_set_test_filter(getenv("WEFT_TEST_FILTER"));
    return cmocka_run_group_tests(tests, setup, corpus_teardown);
}
