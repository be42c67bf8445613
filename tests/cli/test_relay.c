/* Passing on what child processes print. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/child.h"

static void count_wakes(void *context) {
    ++*(int *)context;
}

/* Ranks that print all the time do not keep their parent from looking after them. */
static void looks_around_beside_output(void **state) {
    const double limit_s = 10;
    int output[2], signals[2], wakes = 0;
    assert_int_equal(pipe(output), 0);
    assert_int_equal(pipe(signals), 0);
    pid_t child = fork();
    while (child == 0) {
        if (write(output[1], "a line\n", 7) != 7) _exit(1);
        usleep(10000);
    }
    assert_true(child > 0);
    Relay relay = {
        .in = output[0], .results = -1, .wake = signals[0], .on_wake = count_wakes, .context = &wakes};
    char *line = NULL;
    size_t capacity = 0;
    for (double end = clock_wall() + limit_s; wakes < 2 && clock_wall() < end;)
        assert_true(relay_line(&relay, &line, &capacity) > 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) {
        close(output[i]);
        close(signals[i]);
    }
    free(line);
    assert_int_equal(wakes, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(looks_around_beside_output)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
