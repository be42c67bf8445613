/* A small HTTP server on the loopback interface that runs in a thread of the test and misbehaves on request:
 * it serves files with or without range support, drops connections, reports wrong lengths, stalls, and
 * redirects. It handles one connection at a time. Tests change its fields only between requests. Paths: /NAME
 * serves a file, /moved/NAME redirects to it, /loop/NAME redirects to itself, /nothing/NAME does not exist.
 */
#ifndef WEFT_TESTS_SERVER_H
#define WEFT_TESTS_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test.h"

typedef struct ServedFile {
    const char *name; /* last component of the URL path */
    const void *data;
    size_t size;
    const char *tag; /* ETag, or NULL to send none */
} ServedFile;

typedef struct Server {
    int fd;
    pthread_t thread;
    char url[64]; /* "http://127.0.0.1:PORT/" */
    ServedFile files[4];
    bool no_ranges;              /* ignore the Range header */
    bool no_conditions;          /* ignore the If-Range header */
    bool no_length;              /* omit Content-Length; closing the connection ends the body */
    int64_t said_longer;         /* bytes by which Content-Length overstates the body */
    int64_t cut_at;              /* body bytes to send before a cut or a stall */
    int cuts;                    /* number of responses still to cut */
    int failures, status;        /* number of responses still to fail, and their status code */
    const char *linked;          /* X-Linked-ETag of redirects, or NULL to send none */
    bool garbage;                /* answer with bytes that are not HTTP */
    bool drips;                  /* send the body byte by byte, 50 bytes/s */
    bool endless;                /* repeat the body until the client disconnects */
    bool silent;                 /* stall after cut_at bytes until the client disconnects */
    volatile sig_atomic_t *stop; /* if not NULL, set to 1 in a stall once stop_file has cut_at bytes */
    const char *stop_file;
    /* Recorded from requests. */
    int requests;
    long long last_from;      /* start of the last request's Range; 0 if absent */
    char last_condition[256]; /* If-Range of the last request; empty if absent */
} Server;

static inline bool server_send(int fd, const void *data, size_t size) {
    for (const char *at = data; size > 0;) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent <= 0) return false;
        at += sent;
        size -= (size_t)sent;
    }
    return true;
}

static inline void server_say(int fd, const char *fmt, ...) PRINTF_LIKE(2, 3);
static inline void server_say(int fd, const char *fmt, ...) {
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int size = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    server_send(fd, text, (size_t)size);
}

static inline const ServedFile *server_find(const Server *server, const char *path) {
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; i < sizeof server->files / sizeof *server->files; i++)
        if (server->files[i].name && slash && !strcmp(slash + 1, server->files[i].name))
            return &server->files[i];
    return NULL;
}

static inline void server_body(Server *server, int fd, const ServedFile *file, size_t from) {
    size_t size = file->size - from;
    bool cut = server->silent || server->cuts > 0;
    if (cut && (size_t)server->cut_at < size) size = (size_t)server->cut_at;
    for (size_t i = 0; server->drips && i < size; i++, usleep(20000))
        if (!server_send(fd, (const char *)file->data + from + i, 1)) return;
    while (server->endless && server_send(fd, file->data, file->size)) {
    }
    server_send(fd, (const char *)file->data + from, size);
    if (server->silent) {
        char byte;
        struct stat st;
        for (int i = 0; server->stop && i < 6000; i++) {
            if (stat(server->stop_file, &st) == 0 && st.st_size >= server->cut_at) break;
            usleep(10000);
        }
        if (server->stop) *server->stop = 1;
        while (recv(fd, &byte, 1, 0) > 0) {
        }
    } else if (cut) {
        server->cuts--;
    }
}

static inline void server_file(Server *server, int fd, const ServedFile *file) {
    bool matches = !*server->last_condition || server->no_conditions ||
                   (file->tag && !strcmp(server->last_condition, file->tag));
    size_t from = server->no_ranges || !matches ? 0 : (size_t)server->last_from;
    if (from && from >= file->size) {
        server_say(fd,
                   "HTTP/1.1 416 Range Not Satisfiable\r\nConnection: close\r\nContent-Length: "
                   "0\r\nContent-Range: bytes */%zu\r\n\r\n",
                   file->size);
        return;
    }
    server_say(fd, "HTTP/1.1 %s\r\nConnection: close\r\n", from ? "206 Partial Content" : "200 OK");
    if (file->tag) server_say(fd, "ETag: %s\r\n", file->tag);
    if (from) server_say(fd, "Content-Range: bytes %zu-%zu/%zu\r\n", from, file->size - 1, file->size);
    if (!server->no_length)
        server_say(fd, "Content-Length: %lld\r\n",
                   (long long)(file->size - from) + (long long)server->said_longer);
    server_say(fd, "\r\n");
    server_body(server, fd, file, from);
}

static inline void server_answer(Server *server, int fd, const char *request) {
    char path[512] = "";
    const char *range = strcasestr(request, "\r\nRange: bytes="),
               *condition = strcasestr(request, "\r\nIf-Range: ");
    sscanf(request, "GET %511s", path);
    server->requests++;
    server->last_from = range ? atoll(range + 15) : 0;
    server->last_condition[0] = 0;
    if (condition) sscanf(condition + 12, "%255[^\r]", server->last_condition);
    const ServedFile *file = server_find(server, path);
    if (server->garbage) {
        server_say(fd, "\001\002 this is not HTTP\r\n\r\n");
    } else if (server->failures > 0) {
        server->failures--;
        server_say(fd, "HTTP/1.1 %d Trouble\r\nConnection: close\r\nContent-Length: 4\r\n\r\noops",
                   server->status);
    } else if (!strncmp(path, "/moved/", 7)) {
        server_say(fd, "HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\nETag: \"way\"\r\n");
        if (server->linked) server_say(fd, "X-Linked-ETag: %s\r\n", server->linked);
        server_say(fd, "Location: /%s\r\n\r\n", path + 7);
    } else if (!strncmp(path, "/loop/", 6)) {
        server_say(fd, "HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n",
                   path);
    } else if (file && strncmp(path, "/nothing/", 9) != 0) {
        server_file(server, fd, file);
    } else {
        server_say(fd, "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 4\r\n\r\nno! ");
    }
}

static inline void *server_run(void *user) {
    Server *server = user;
    for (int fd; (fd = accept(server->fd, NULL, NULL)) >= 0;) {
        char request[8192];
        size_t size = 0;
        ssize_t got = 0;
        do {
            request[size] = 0;
            if (strstr(request, "\r\n\r\n")) break;
            got = recv(fd, request + size, sizeof request - 1 - size, 0);
            if (got > 0) size += (size_t)got;
        } while (got > 0 && size < sizeof request - 1);
        request[size] = 0;
        if (strstr(request, "\r\n\r\n")) server_answer(server, fd, request);
        shutdown(fd, SHUT_WR);
        /* Drain the socket: closing it with unread input resets the connection, and the client loses data. */
        while (recv(fd, request, sizeof request, 0) > 0) {
        }
        close(fd);
    }
    return NULL;
}

/* Test setup and teardown; *state is the Server. Disables proxies, which cannot reach it. */
static inline int server_setup(void **state) {
    Server *server = calloc(1, sizeof *server);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (!server) return -1;
    setenv("no_proxy", "*", 1);
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->fd < 0 || bind(server->fd, (struct sockaddr *)&address, size) != 0 ||
        listen(server->fd, 16) != 0 || getsockname(server->fd, (struct sockaddr *)&address, &size) != 0)
        return -1;
    snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    *state = server;
    return pthread_create(&server->thread, NULL, server_run, server);
}

static inline int server_teardown(void **state) {
    Server *server = *state;
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
    free(server);
    return 0;
}

#endif
