/* TensorBoard event files: records have correct checksums and store the metrics at their steps. */
#include "test.h"

#include <dirent.h>
#include <endian.h>
#include <stdlib.h>

#include "base/fs.h"
#include "base/memory.h"
#include "train/events.h"

enum { RECORDS = 16, VALUES = 16 };

/* A decoded record, reduced to the fields that weft writes. */
typedef struct Record {
    int64_t step;
    bool starts_session;
    char version[32];
    int values;
    char tag[VALUES][64];
    float number[VALUES];
} Record;

static uint64_t take_varint(const unsigned char **at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
}

static void read_summary(Record *record, const unsigned char *at, const unsigned char *end) {
    while (at < end) {
        assert_int_equal(take_varint(&at), 1 << 3 | 2);
        const unsigned char *stop = at + 1;
        stop += *at < 0x80 ? *at : 0; /* tags are shorter than 128 bytes, so their length is one byte */
        at++;
        assert_int_equal(take_varint(&at), 1 << 3 | 2);
        uint64_t length = take_varint(&at);
        assert_true(length < 64 && record->values < VALUES);
        memcpy(record->tag[record->values], at, length);
        at += length;
        assert_int_equal(take_varint(&at), 2 << 3 | 5);
        memcpy(&record->number[record->values++], at, 4);
        at += 4;
        assert_ptr_equal(at, stop);
    }
}

static void read_event(Record *record, const unsigned char *at, const unsigned char *end) {
    *record = (Record){0};
    while (at < end) {
        uint64_t key = take_varint(&at), length;
        switch (key) {
        case 1 << 3 | 1: at += 8; break;
        case 2 << 3 | 0: record->step = (int64_t)take_varint(&at); break;
        case 3 << 3 | 2:
            length = take_varint(&at);
            assert_true(length < sizeof record->version);
            memcpy(record->version, at, length);
            at += length;
            break;
        case 5 << 3 | 2:
            length = take_varint(&at);
            read_summary(record, at, at + length);
            at += length;
            break;
        case 7 << 3 | 2:
            record->starts_session = at[0] == 2 && at[1] == (1 << 3) && at[2] == 1;
            at += 3;
            break;
        default: fail_msg("unexpected field %llu", (unsigned long long)key);
        }
    }
}

static int read_file(const char *path, Record *records) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size, at = 0;
    int count = 0;
    assert_ok(file_read(path, 1 << 20, &text, &size));
    for (; at < size; count++) {
        uint64_t length;
        uint32_t before, after;
        assert_true(size - at >= 16 && count < RECORDS);
        memcpy(&length, text + at, 8);
        memcpy(&before, text + at + 8, 4);
        length = le64toh(length);
        assert_int_equal(le32toh(before), events_checksum(text + at, 8));
        assert_true(length <= size - at - 16);
        memcpy(&after, text + at + 12 + length, 4);
        assert_int_equal(le32toh(after), events_checksum(text + at + 12, length));
        const unsigned char *bytes = (const unsigned char *)text + at + 12;
        read_event(&records[count], bytes, bytes + length);
        at += 16 + length;
    }
    return count;
}

/* Finds the last event file by name in a directory; returns the number of event files. */
static int find_files(const char *dir, char *ret_path, size_t room) {
    int count = 0;
    char best[300] = "";
    DIR *folder = opendir(dir);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20)) continue;
        if (strcmp(entry->d_name, best) > 0) snprintf(best, sizeof best, "%s", entry->d_name);
        count++;
    }
    closedir(folder);
    snprintf(ret_path, room, "%s/%s", dir, best);
    return count;
}

/* The CRC-32C of "123456789" is published. Masking rotates it by 15 bits and adds a constant. */
static void checksum(void **state) {
    uint32_t crc = 0xe3069283;
    assert_int_equal(events_checksum("123456789", 9), (crc >> 15 | crc << 17) + 0xa282ead8u);
}

static void add(Events *events, const char *text) {
    json_t *line = json_loads(text, 0, NULL);
    assert_non_null(line);
    assert_ok(events_add(events, line));
    json_decref(line);
}

static void numbers_at_steps(void **state) {
    char dir[] = "/tmp/weft-events-XXXXXX", path[600];
    assert_non_null(mkdtemp(dir));
    CLEANUP(mem_freep) Record *records = NULL;
    assert_ok(mem_new(RECORDS, sizeof *records, &records));
    Events *events = NULL;
    assert_ok(events_new(&events, dir, 0, NULL));
    add(events,
        "{\"step\": 3, \"loss\": 2.5, \"tokens\": 300, \"note\": \"text\", \"parts\": {\"nsp\": 0.25}}");
    add(events, "{\"step\": 1000000, \"loss\": 1e-3}");
    events_free(events);
    assert_int_equal(find_files(dir, path, sizeof path), 1);
    assert_int_equal(read_file(path, records), 3);
    assert_string_equal(records[0].version, "brain.Event:2");
    assert_int_equal(records[1].step, 3);
    assert_int_equal(records[1].values, 3);
    assert_string_equal(records[1].tag[0], "loss");
    assert_true(records[1].number[0] == 2.5f);
    assert_string_equal(records[1].tag[1], "tokens");
    assert_true(records[1].number[1] == 300);
    assert_string_equal(records[1].tag[2], "parts/nsp");
    assert_true(records[1].number[2] == 0.25f);
    assert_int_equal(records[2].step, 1000000);

    /* A resumed run keeps the files and discards later steps. A new run removes them. */
    events = NULL;
    assert_ok(events_new(&events, dir, 3, NULL));
    events_free(events);
    assert_int_equal(find_files(dir, path, sizeof path), 2);
    assert_int_equal(read_file(path, records), 2);
    assert_true(records[1].starts_session);
    assert_int_equal(records[1].step, 4);
    events = NULL;
    assert_ok(events_new(&events, dir, 0, NULL));
    events_free(events);
    assert_int_equal(find_files(dir, path, sizeof path), 1);
    assert_ok(dir_remove(dir));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksum),
        cmocka_unit_test(numbers_at_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
