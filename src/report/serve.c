/* libmicrohttpd calls `answer` for each request, in a thread per connection. The page is made at most once
 * per interval, by whichever connection needs it first, and only if a file of the runs has changed since.
 * Pages take at most PAGE_SHARE of a core, so that watching a run does not disturb it. An event stream is a
 * response without an end: its thread sleeps until there is a newer page.
 *
 * A connection whose request is not complete in time is shut by a thread of its own, and so is the one that
 * has waited longest if there are too many of them: connections without a request cannot keep others out.
 * Shutting a socket wakes the thread that reads from it, which closes it. */
#include "report/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/memory.h"
#include "report/page.h"

enum { MAX_CONNECTIONS = 64, MAX_WAITING = 32, REQUEST_S = 5, IDLE_S = 30, BEAT_S = 15, BLOCK = 16384 };

#define PAGE_SHARE 0.05
#define LOOK_S     0.25 /* between two looks for connections that are late */

/* The newest page. */
typedef struct Snapshot {
    char *html, *json;
    char *contents; /* the <main> element as the data of an event */
    uint64_t version, fingerprint;
    double next_look; /* when files may be looked at again */
} Snapshot;

typedef struct Connection {
    int fd;
    double since; /* when it began to wait for a request; INFINITY: it is being answered or has been shut */
} Connection;

struct Server {
    ServeSpec spec;
    struct MHD_Daemon *daemon;
    pthread_mutex_t gate; /* of the connections, and of `closed` */
    pthread_cond_t closing;
    Connection open[MAX_CONNECTIONS];
    size_t open_count;
    pthread_t closer;
    bool has_closer, closed;
    pthread_mutex_t lock; /* of the page */
    pthread_cond_t stopping;
    bool stopped;
    Snapshot page;
    char **files; /* whose changes make a new page */
    size_t file_count, file_capacity;
};

/* ---- the page ---- */

static void forget_files(Server *server) {
    for (size_t i = 0; i < server->file_count; i++) free(server->files[i]);
    server->file_count = 0;
}

static Status add_file(Server *server, const char *dir, const char *name) {
    TRY(mem_grow(&server->files, &server->file_capacity, server->file_count + 1, sizeof *server->files));
    TRY(path_join(&server->files[server->file_count], dir, name));
    server->file_count++;
    return OK;
}

/* A run's files, and the results.json of the comparison that contains it. */
static Status note_files(Server *server, const Results *results) {
    static const char *const names[] = {"metrics.jsonl", "summary.json", "../results.json"};
    forget_files(server);
    for (size_t i = 0; i < results->count; i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            TRY(add_file(server, results->runs[i].dir, names[k]));
    return OK;
}

/* Differs if a file's size or time does. */
static uint64_t fingerprint(const Server *server) {
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < server->file_count; i++) {
        struct stat state = {0};
        uint64_t parts[3] = {0};
        if (stat(server->files[i], &state) == 0) {
            parts[0] = (uint64_t)state.st_size;
            parts[1] = (uint64_t)state.st_mtim.tv_sec;
            parts[2] = (uint64_t)state.st_mtim.tv_nsec;
        }
        for (size_t k = 0; k < 3; k++) hash = (hash ^ parts[k]) * 1099511628211u;
    }
    return hash;
}

/* An event: each line of the <main> element after "data: ". */
static Status event_of(const char *html, uint64_t version, char **ret_event) {
    CLEANUP(text_done) Text text = {0};
    const char *from = strstr(html, "<main>"), *end = strstr(html, "</main>");
    TRY(text_open(&text));
    fprintf(text.out, "id: %llu\n", (unsigned long long)version);
    for (const char *next; from && from < end; from = next + 1) {
        next = memchr(from, '\n', (size_t)(end - from));
        if (!next) next = end;
        fprintf(text.out, "data: %.*s\n", (int)(next - from), from);
    }
    fputs("data: </main>\n\n", text.out);
    return text_take(&text, ret_event, NULL);
}

static double seconds_of(struct timeval time) {
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* CPU time of this process and of the plotting programs that it has run. */
static double cpu_time(void) {
    struct rusage own = {0}, children = {0};
    getrusage(RUSAGE_SELF, &own);
    getrusage(RUSAGE_CHILDREN, &children);
    return seconds_of(own.ru_utime) + seconds_of(own.ru_stime) + seconds_of(children.ru_utime) +
           seconds_of(children.ru_stime);
}

static Status make_page(Server *server) {
    CLEANUP(results_done) Results results = {0};
    CLEANUP(json_decrefp) json_t *json = NULL;
    CLEANUP(mem_freep) char *html = NULL, *text = NULL, *event = NULL;
    uint64_t before = fingerprint(server);
    TRY(server->spec.load(server->spec.context, &results));
    TRY(note_files(server, &results));
    /* A file that has changed since it was read makes another page. */
    uint64_t found = fingerprint(server) == before ? before : 0;
    TRY(page_text(&results, &html));
    TRY(results_json(&results, &json));
    text = json_serialize(json, JSON_INDENT(4));
    if (!text) return FAILED("out of memory while writing the page");
    Snapshot *page = &server->page;
    TRY(event_of(html, page->version + 1, &event));
    free(page->html);
    free(page->json);
    free(page->contents);
    *page = (Snapshot){html, text, event, page->version + 1, found, page->next_look};
    html = text = event = NULL;
    return OK;
}

/* Makes a new page if something has changed. A page that cannot be made leaves the old one. The lock is held.
 */
static void refresh(Server *server) {
    Snapshot *page = &server->page;
    double pause = server->spec.interval;
    if (clock_wall() < page->next_look) return;
    if (fingerprint(server) != page->fingerprint) {
        double start = cpu_time();
        CLEANUP(status_freep) Status failed = make_page(server);
        pause = fmax(pause, (cpu_time() - start) / PAGE_SHARE);
    }
    page->next_look = clock_wall() + pause;
}

/* ---- event streams ---- */

typedef struct Stream {
    Server *server;
    uint64_t sent; /* version */
    char *text;    /* being sent, from `at` */
    size_t at;
} Stream;

static void stream_free(void *context) {
    Stream *stream = context;
    free(stream->text);
    free(stream);
}

/* Waits for a newer page, or for a while; then returns the text to send. NULL: the server stops. */
static char *next_event(Stream *stream) {
    Server *server = stream->server;
    double until = clock_wall() + BEAT_S;
    char *text = NULL;
    pthread_mutex_lock(&server->lock);
    while (!server->stopped && !text) {
        refresh(server);
        if (server->page.contents && server->page.version > stream->sent) {
            text = strdup(server->page.contents);
            stream->sent = server->page.version;
        } else if (clock_wall() > until) {
            text = strdup(": still here\n\n");
        } else {
            struct timespec time = clock_after(server->spec.interval);
            pthread_cond_timedwait(&server->stopping, &server->lock, &time);
        }
    }
    pthread_mutex_unlock(&server->lock);
    return text;
}

static ssize_t read_stream(void *context, uint64_t position, char *buffer, size_t size) {
    Stream *stream = context;
    (void)position;
    if (!stream->text || !stream->text[stream->at]) {
        free(stream->text);
        stream->text = next_event(stream);
        stream->at = 0;
        if (!stream->text) return MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t left = strlen(stream->text + stream->at), count = left < size ? left : size;
    memcpy(buffer, stream->text + stream->at, count);
    stream->at += count;
    return (ssize_t)count;
}

/* The browser names the version that it has when it reconnects. A new page may have been made since it loaded
 * the first one, so without a version it gets the newest. Versions of an earlier server are smaller. */
static struct MHD_Response *event_response(Server *server, struct MHD_Connection *connection) {
    Stream *stream = calloc(1, sizeof *stream);
    if (!stream) return NULL;
    const char *last = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Last-Event-ID");
    stream->server = server;
    pthread_mutex_lock(&server->lock);
    stream->sent = last ? strtoull(last, NULL, 10) : 0;
    if (stream->sent > server->page.version) stream->sent = 0;
    pthread_mutex_unlock(&server->lock);
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, stream, stream_free);
}

/* ---- connections ---- */

static void shut(Connection *connection) {
    shutdown(connection->fd, SHUT_RDWR);
    connection->since = INFINITY;
}

static void *shut_late(void *context) {
    Server *server = context;
    double limit = server->spec.request_s > 0 ? server->spec.request_s : REQUEST_S;
    pthread_mutex_lock(&server->gate);
    while (!server->closed) {
        for (size_t i = 0; i < server->open_count; i++)
            if (clock_wall() - server->open[i].since > limit) shut(&server->open[i]);
        struct timespec next = clock_after(LOOK_S);
        pthread_cond_timedwait(&server->closing, &server->gate, &next);
    }
    pthread_mutex_unlock(&server->gate);
    return NULL;
}

/* Shuts the connection that has waited longest if too many wait. */
static void make_room(Server *server) {
    Connection *oldest = NULL;
    size_t waiting = 0;
    for (size_t i = 0; i < server->open_count; i++) {
        Connection *connection = &server->open[i];
        waiting += isfinite(connection->since);
        if (!oldest || connection->since < oldest->since) oldest = connection;
    }
    if (waiting > MAX_WAITING) shut(oldest);
}

/* It waits for a request after it is opened and after an answer. */
typedef enum { OPENED, ANSWERING, ANSWERED, CLOSED } Event;

static void note(Server *server, struct MHD_Connection *connection, Event event) {
    int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    pthread_mutex_lock(&server->gate);
    if (event == OPENED && server->open_count < MAX_CONNECTIONS)
        server->open[server->open_count++] = (Connection){fd, clock_wall()};
    for (size_t i = 0; i < server->open_count; i++) {
        if (server->open[i].fd != fd) continue;
        if (event == CLOSED) server->open[i] = server->open[--server->open_count];
        if (event == ANSWERING || event == ANSWERED)
            server->open[i].since = event == ANSWERING ? INFINITY : clock_wall();
        break;
    }
    make_room(server);
    pthread_mutex_unlock(&server->gate);
}

static void note_connection(void *context, struct MHD_Connection *connection, void **state,
                            enum MHD_ConnectionNotificationCode what) {
    (void)state;
    note(context, connection, what == MHD_CONNECTION_NOTIFY_STARTED ? OPENED : CLOSED);
}

/* An answer has been sent, or could not be. */
static void note_answered(void *context, struct MHD_Connection *connection, void **state,
                          enum MHD_RequestTerminationCode why) {
    (void)state, (void)why;
    note(context, connection, ANSWERED);
}

/* ---- requests ---- */

static struct MHD_Response *text_response(const char *text) {
    return MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
}

static struct MHD_Response *page_response(Server *server, bool json) {
    pthread_mutex_lock(&server->lock);
    refresh(server);
    const char *text = json ? server->page.json : server->page.html;
    struct MHD_Response *response = text ? text_response(text) : NULL;
    pthread_mutex_unlock(&server->lock);
    return response;
}

static enum MHD_Result send_response(struct MHD_Connection *connection, unsigned code,
                                     struct MHD_Response *response, const char *type) {
    if (!response) return MHD_NO;
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    /* Nothing but this page may be loaded or may read it. */
    MHD_add_response_header(response, "Content-Security-Policy",
                            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                            "connect-src 'self'; frame-ancestors 'none'");
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

/* A page of another site can give its own name the address of this server and then read what it serves (DNS
 * rebinding), so a server for this machine only answers only to names of this machine. */
static bool is_for_us(const Server *server, struct MHD_Connection *connection) {
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    if (!host || !serve_is_local(server->spec.address)) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (!strncasecmp(host, names[i], length) && (!host[length] || host[length] == ':')) return true;
    }
    size_t length = strlen(server->spec.address);
    return !strncmp(host, server->spec.address, length) && (!host[length] || host[length] == ':');
}

/* Called when a request is complete. */
static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data, size_t *size,
                              void **state) {
    static const char plain[] = "text/plain; charset=utf-8";
    Server *server = context;
    (void)version, (void)data, (void)size, (void)state;
    note(server, connection, ANSWERING);
    if (!is_for_us(server, connection))
        return send_response(connection, MHD_HTTP_FORBIDDEN,
                             text_response("this server answers only to http://localhost\n"), plain);
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        return send_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, text_response("read only\n"), plain);
    if (!strcmp(path, "/"))
        return send_response(connection, MHD_HTTP_OK, page_response(server, false),
                             "text/html; charset=utf-8");
    if (!strcmp(path, "/results.json"))
        return send_response(connection, MHD_HTTP_OK, page_response(server, true), "application/json");
    if (!strcmp(path, "/events"))
        return send_response(connection, MHD_HTTP_OK, event_response(server, connection),
                             "text/event-stream");
    return send_response(connection, MHD_HTTP_NOT_FOUND, text_response("not found\n"), plain);
}

/* ---- the server ---- */

bool serve_available(void) {
    return true;
}

bool serve_is_local(const char *address) {
    return !strncmp(address, "127.", 4) || !strcmp(address, "::1");
}

/* Fills in an address of either kind; false if it is neither. */
static bool parse_address(const ServeSpec *spec, struct sockaddr_storage *ret_address, bool *ret_six) {
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)spec->port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)spec->port)};
    *ret_six = inet_pton(AF_INET, spec->address, &four.sin_addr) != 1;
    bool known = !*ret_six || inet_pton(AF_INET6, spec->address, &six.sin6_addr) == 1;
    memcpy(ret_address, *ret_six ? (void *)&six : (void *)&four, *ret_six ? sizeof six : sizeof four);
    return known;
}

Status serve_new(Server **ret_server, const ServeSpec *spec) {
    CLEANUP(serve_freep) Server *server = NULL;
    struct sockaddr_storage address;
    bool six;
    if (!parse_address(spec, &address, &six))
        return USAGE("{address} '%s': expected an IPv4 or IPv6 address", spec->address);
    TRY(mem_new(1, sizeof *server, &server));
    server->spec = *spec;
    pthread_mutex_init(&server->lock, NULL);
    clock_cond_init(&server->stopping);
    pthread_mutex_init(&server->gate, NULL);
    clock_cond_init(&server->closing);
    server->page.version = (uint64_t)(1e3 * clock_wall());
    TRY(make_page(server)); /* problems with the runs are reported before anyone connects */
    server->has_closer = pthread_create(&server->closer, NULL, shut_late, server) == 0;
    if (!server->has_closer) return FAILED("cannot start a thread for the server");
    server->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | (six ? MHD_USE_IPv6 : 0),
        (uint16_t)spec->port, NULL, NULL, answer, server, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_NOTIFY_CONNECTION, note_connection, server, MHD_OPTION_NOTIFY_COMPLETED,
        note_answered, server, MHD_OPTION_END);
    if (!server->daemon && errno == EADDRNOTAVAIL)
        return FAILED("cannot listen on %s: it is not an address of this machine; choose another {address}",
                      spec->address);
    if (!server->daemon)
        return FAILED("cannot listen on port %d of %s: %s; choose another {port}", spec->port, spec->address,
                      errno ? strerror(errno) : "it may be in use");
    *ret_server = server;
    server = NULL;
    return OK;
}

int serve_port(const Server *server) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info ? info->port : server->spec.port;
}

void serve_free(Server *server) {
    if (!server) return;
    pthread_mutex_lock(&server->lock);
    server->stopped = true;
    pthread_cond_broadcast(&server->stopping);
    pthread_mutex_unlock(&server->lock);
    if (server->daemon) MHD_stop_daemon(server->daemon);
    pthread_mutex_lock(&server->gate);
    server->closed = true;
    pthread_cond_broadcast(&server->closing);
    pthread_mutex_unlock(&server->gate);
    if (server->has_closer) pthread_join(server->closer, NULL);
    forget_files(server);
    free(server->files);
    free(server->page.html);
    free(server->page.json);
    free(server->page.contents);
    pthread_mutex_destroy(&server->lock);
    pthread_cond_destroy(&server->stopping);
    pthread_mutex_destroy(&server->gate);
    pthread_cond_destroy(&server->closing);
    free(server);
}
