/* The served page: what it answers, what it refuses, and events after a run has written something. Skipped in
 * builds without libmicrohttpd. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/memory.h"
#include "report/run.h"
#include "report/serve.h"

static Status load(const void *context, Results *results) {
    add(results, context, "run");
    return str_dup("served", &results->title);
}

static int connect_to(const Server *server) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)serve_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static void ask_as(int fd, const char *what, const char *host, const char *header) {
    char text[200];
    int size = snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n", what,
                        host, header);
    assert_int_equal(write(fd, text, (size_t)size), size);
}

static void ask(int fd, const char *what) {
    ask_as(fd, what, "localhost", "");
}

/* Reads until the text contains `end`, or to the end of the answer if that is NULL. */
static char *hear(int fd, const char *end) {
    size_t size = 0, capacity = 1 << 20;
    char *text = malloc(capacity);
    assert_non_null(text);
    for (text[0] = 0; !end || !strstr(text, end);) {
        ssize_t got = read(fd, text + size, capacity - size - 1);
        if (got < 0 && errno == EINTR) continue; /* the server's child has ended */
        if (got <= 0) {
            if (end) fail_msg("expected '%s' in:\n%s", end, text);
            break;
        }
        size += (size_t)got;
        text[size] = 0;
        assert_true(size + 1 < capacity);
    }
    return text;
}

static char *get(const Server *server, const char *what) {
    int fd = connect_to(server);
    ask(fd, what);
    char *text = hear(fd, NULL);
    close(fd);
    return text;
}

static void serves(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(serve_freep) Server *server = NULL;
    ServeSpec spec = {.address = "127.0.0.1", .interval = 0.02, .load = load, .context = fixture};
    if (!serve_available()) {
        assert_fails(serve_new(&server, &spec), 1, "install libmicrohttpd and build again");
        skip();
    }
    write_run(fixture, "run", NULL, METRICS);
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0); /* plots take long */
    assert_ok(serve_new(&server, &spec));
    char *text = get(server, "GET /");
    assert_has(text, "200 OK");
    assert_has(text, "default-src 'none'");
    assert_has(text, "<body data-live>");
    assert_has(text, "4.5000");
    free(text);
    text = get(server, "GET /results.json");
    json_t *json = NULL;
    const char *body = strstr(text, "\r\n\r\n");
    assert_non_null(body);
    assert_ok(json_parse(body, strlen(body), "results", &json));
    assert_int_equal(json_array_size(json_object_get(json, "runs")), 1);
    json_decref(json);
    free(text);
    static const char *const refused[][2] = {{"POST /", "405 "},
                                             {"DELETE /results.json", "405 "},
                                             {"GET /metrics.jsonl", "404 "},
                                             {"GET /../run/summary.json", "404 "}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        text = get(server, refused[i][0]);
        assert_has(text, refused[i][1]);
        free(text);
    }
    /* Only names of this machine, so that no other site can read the page under its own name. */
    static const char *const hosts[][2] = {{"localhost:8520", "200 "},
                                           {"127.0.0.1", "200 "},
                                           {"[::1]:1", "200 "},
                                           {"localhost.example", "403 "},
                                           {"example:8520", "403 "}};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        int fd = connect_to(server);
        ask_as(fd, "GET /", hosts[i][0], "");
        text = hear(fd, NULL);
        assert_has(text, hosts[i][1]);
        free(text);
        close(fd);
    }
    /* The newest contents come at once, also to a browser that knows the versions of an earlier server. A new
     * step is an event with the new contents. */
    int fd = connect_to(server);
    ask_as(fd, "GET /events", "localhost", "Last-Event-ID: 18446744073709551615\r\n");
    text = hear(fd, "data: </main>");
    assert_has(text, "text/event-stream");
    assert_has(text, "4.5000");
    free(text);
    write_run(fixture, "run", NULL,
              METRICS "{\"step\":3,\"loss\":3.25,\"samples_per_s\":60,\"tokens_per_s\":600,\"step_ms\":60,"
                      "\"elapsed_s\":2}\n");
    text = hear(fd, "data: </main>");
    assert_has(text, "data: <main>");
    assert_has(text, "3.2500");
    free(text);
    close(fd);
}

/* Connections without a complete request do not keep others out, and are closed even if a byte comes now and
 * then. An event stream stays. */
static void shuts_idle_connections(void **state) {
    enum { IDLE = 80 };
    const Fixture *fixture = *state;
    CLEANUP(serve_freep) Server *server = NULL;
    ServeSpec spec = {
        .address = "127.0.0.1", .interval = 0.02, .request_s = 1, .load = load, .context = fixture};
    int idle[IDLE];
    if (!serve_available()) skip();
    write_run(fixture, "run", NULL, METRICS);
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    assert_ok(serve_new(&server, &spec));
    int stream = connect_to(server);
    ask(stream, "GET /events");
    free(hear(stream, "data: </main>"));
    double start = clock_wall();
    for (int i = 0; i < IDLE; i++) {
        idle[i] = connect_to(server);
        assert_int_equal(send(idle[i], "GET / HT", 8, MSG_NOSIGNAL), 8);
    }
    char *text = get(server, "GET /results.json");
    assert_has(text, "200 OK");
    assert_true(clock_wall() - start < 10); /* they would otherwise be closed after 30 s */
    free(text);
    /* The server closes the last one, though it is never silent. */
    bool closed = false;
    for (int i = 0; i < 100 && !closed; i++) {
        char byte;
        struct timespec pause = {.tv_nsec = 100000000};
        closed = send(idle[IDLE - 1], "x", 1, MSG_NOSIGNAL) < 0 ||
                 recv(idle[IDLE - 1], &byte, 1, MSG_DONTWAIT) == 0;
        nanosleep(&pause, NULL);
    }
    assert_true(closed);
    write_run(fixture, "run", NULL, METRICS "{\"step\":3,\"loss\":3.25,\"step_ms\":60,\"elapsed_s\":2}\n");
    free(hear(stream, "3.2500"));
    for (int i = 0; i < IDLE; i++) close(idle[i]);
    close(stream);
}

enum { READS = 5 };
#define READ_CPU_S 0.02

/* Runs that take a while to read, and when they were read. */
typedef struct SlowRuns {
    const Fixture *fixture;
    double *start; /* the first READS of them */
    atomic_int *reads;
} SlowRuns;

static double thread_cpu(void) {
    struct timespec time;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static Status load_slowly(const void *context, Results *results) {
    const SlowRuns *runs = context;
    double end = thread_cpu() + READ_CPU_S;
    int read = atomic_load(runs->reads);
    if (read < READS) runs->start[read] = clock_wall();
    while (thread_cpu() < end) continue;
    atomic_fetch_add(runs->reads, 1);
    return load(runs->fixture, results);
}

/* However often a run writes and however many ask, pages take at most 5% of a core. */
static void spares_the_run(void **state) {
    const Fixture *fixture = *state;
    CLEANUP(serve_freep) Server *server = NULL;
    double start[READS];
    atomic_int reads = 0;
    SlowRuns runs = {fixture, start, &reads};
    ServeSpec spec = {.address = "127.0.0.1", .interval = 0.001, .load = load_slowly, .context = &runs};
    if (!serve_available()) skip();
    write_run(fixture, "run", NULL, METRICS);
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    assert_ok(serve_new(&server, &spec));
    double limit = clock_wall() + 120;
    for (int i = 0; atomic_load(&reads) < READS; i++) {
        char metrics[640];
        struct timespec pause = {.tv_nsec = 5000000};
        snprintf(metrics, sizeof metrics, METRICS "{\"step\":3,\"loss\":4.%d}\n", i);
        write_run(fixture, "run", NULL, metrics);
        free(get(server, i % 2 ? "GET /" : "GET /results.json"));
        assert_true(clock_wall() < limit);
        nanosleep(&pause, NULL);
    }
    /* The first page is made before anyone asks. */
    for (int i = 2; i < READS; i++)
        if (!(start[i] - start[i - 1] >= READ_CPU_S / 0.05))
            fail_msg("a page that takes %g s of CPU time after %g s", READ_CPU_S, start[i] - start[i - 1]);
}

static void refuses(void **state) {
    const Fixture *fixture = *state;
    Server *server = NULL, *second = NULL;
    ServeSpec spec = {.address = "somewhere", .interval = 1, .load = load, .context = fixture};
    if (!serve_available()) skip();
    write_run(fixture, "run", NULL, METRICS);
    assert_int_equal(setenv("PATH", "/nowhere", 1), 0);
    assert_fails(serve_new(&server, &spec), 2, "expected an IPv4 or IPv6 address");
    spec.address = "192.0.2.1"; /* reserved for documentation, so no machine has it */
    assert_fails(serve_new(&server, &spec), 1, "not an address of this machine; choose another --address");
    spec.address = "127.0.0.1";
    assert_ok(serve_new(&server, &spec));
    spec.port = serve_port(server);
    assert_fails(serve_new(&second, &spec), 1, "cannot listen on port");
    serve_free(server);
}

int main(void) {
    const struct CMUnitTest tests[] = {TEST(serves), TEST(shuts_idle_connections), TEST(spares_the_run),
                                       TEST(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
