/* Writes TensorBoard event files without a protocol buffer library: a message is built in a fixed buffer,
 * field by field, and written as one record. */
#include "train/events.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/fs.h"
#include "base/memory.h"
#include "train/log_file.h"

enum { NAME_LIMIT = 200, EVENT_LIMIT = 64 << 10, SESSION_START = 1 };

/* Field numbers of Event, Summary, Value and SessionLog; wire types. */
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* A message being built. Bytes that do not fit are dropped but still counted, so size > EVENT_LIMIT means
 * overflow. */
typedef struct Message {
    unsigned char bytes[EVENT_LIMIT];
    size_t size;
} Message;

enum { RECORD_HEAD = 12, RECORD_TAIL = 4 };

struct Events {
    char *path;
    LogFile *file;
    Message event, summary;
    unsigned char record[RECORD_HEAD + EVENT_LIMIT + RECORD_TAIL];
};

/* ---- checksums ---- */

uint32_t events_checksum(const void *bytes, size_t size) {
    uint32_t crc = crc32c(0, bytes, size);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

/* ---- messages ---- */

static void put(Message *message, const void *bytes, size_t size) {
    if (message->size + size <= sizeof message->bytes) memcpy(message->bytes + message->size, bytes, size);
    message->size += size;
}

static void put_varint(Message *message, uint64_t value) {
    do {
        unsigned char byte = (unsigned char)(value & 0x7f) | (value > 0x7f ? 0x80 : 0);
        put(message, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_key(Message *message, int field, int wire) {
    put_varint(message, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_double(Message *message, int field, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = htole64(bits);
    put_key(message, field, WIRE_64);
    put(message, &bits, sizeof bits);
}

static void put_float(Message *message, int field, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = htole32(bits);
    put_key(message, field, WIRE_32);
    put(message, &bits, sizeof bits);
}

static void put_bytes(Message *message, int field, const void *bytes, size_t size) {
    put_key(message, field, WIRE_BYTES);
    put_varint(message, size);
    put(message, bytes, size);
}

/* ---- the file ---- */

static Status write_event(Events *events) {
    const Message *message = &events->event;
    if (message->size > sizeof message->bytes)
        return FAILED("internal: event of %zu bytes exceeds the buffer", message->size);
    uint64_t length = htole64(message->size);
    uint32_t before = htole32(events_checksum(&length, sizeof length));
    uint32_t after = htole32(events_checksum(message->bytes, message->size));
    unsigned char *record = events->record;
    memcpy(record, &length, sizeof length);
    memcpy(record + sizeof length, &before, sizeof before);
    memcpy(record + RECORD_HEAD, message->bytes, message->size);
    memcpy(record + RECORD_HEAD + message->size, &after, sizeof after);
    log_file_add(events->file, record, RECORD_HEAD + message->size + RECORD_TAIL);
    return OK;
}

static void begin_event(Events *events, int64_t step) {
    Message *message = &events->event;
    message->size = 0;
    put_double(message, EVENT_TIME, clock_read(CLOCK_REALTIME));
    put_key(message, EVENT_STEP, WIRE_VARINT);
    put_varint(message, (uint64_t)step);
}

static Status write_head(Events *events, int64_t step) {
    static const char version[] = "brain.Event:2";
    begin_event(events, 0);
    put_bytes(&events->event, EVENT_VERSION, version, sizeof version - 1);
    TRY(write_event(events));
    if (step == 0) return OK;
    const unsigned char session[] = {SESSION_STATUS << 3 | WIRE_VARINT, SESSION_START};
    begin_event(events, step + 1);
    put_bytes(&events->event, EVENT_SESSION, session, sizeof session);
    return write_event(events);
}

static Status remove_earlier(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return FAILED("%s: cannot read directory: %s", path, strerror(errno));
    Status status = OK;
    for (struct dirent *entry; !status && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20)) continue;
        CLEANUP(mem_freep) char *file = NULL;
        status = path_join(&file, path, entry->d_name);
        if (!status && unlink(file) != 0) status = FAILED("%s: cannot remove: %s", file, strerror(errno));
    }
    closedir(dir);
    return status;
}

Status events_new(Events **ret_events, const char *dir, int64_t step, Progress *progress) {
    CLEANUP(events_freep) Events *events = NULL;
    char host[65] = "host";
    TRY(mem_new(1, sizeof *events, &events));
    if (step == 0) TRY(remove_earlier(dir));
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "host");
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '_';
    /* TensorBoard reads files in order of their names, so names sort by time, then by step within a second.
     */
    TRY(str_format(&events->path, "%s/events.out.tfevents.%lld.%s.%09lld.%ld", dir, (long long)time(NULL),
                   host, (long long)step, (long)getpid()));
    TRY(log_file_new(&events->file, events->path, false, progress));
    TRY(write_head(events, step));
    return MOVE(ret_events, events);
}

void events_free(Events *events) {
    if (!events) return;
    log_file_free(events->file);
    free(events->path);
    free(events);
}

/* Appends one Value message: tag and number. */
static void put_value(Message *summary, const char *tag, double number) {
    size_t length = strlen(tag), prefix = length > 0x7f ? 3 : 2;
    put_key(summary, SUMMARY_VALUE, WIRE_BYTES);
    put_varint(summary, prefix + length + 1 + sizeof(float));
    put_bytes(summary, VALUE_TAG, tag, length);
    put_float(summary, VALUE_SIMPLE, (float)number);
}

/* Tags longer than NAME_LIMIT are skipped. */
static void put_numbers(Message *summary, const char *prefix, const json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        char tag[NAME_LIMIT + 2];
        if (snprintf(tag, sizeof tag, "%s%s%s", prefix, *prefix ? "/" : "", key) > NAME_LIMIT) continue;
        if (json_is_object(value)) put_numbers(summary, tag, value);
        if (json_is_number(value) && strcmp(tag, "step")) put_value(summary, tag, json_number_value(value));
    }
}

Status events_add(Events *events, const json_t *line) {
    Message *summary = &events->summary;
    summary->size = 0;
    put_numbers(summary, "", line);
    if (summary->size > sizeof summary->bytes)
        return FAILED("internal: metrics of %zu bytes exceed the event buffer", summary->size);
    begin_event(events, json_int_at(line, "step"));
    put_bytes(&events->event, EVENT_SUMMARY, summary->bytes, summary->size);
    return write_event(events);
}
