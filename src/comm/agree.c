/* The ranks exchange hashes of their tables. Only if these differ does rank 0 send its table, and every rank
 * looks for the first row in which its own differs. */
#include "comm/agree.h"

#include <string.h>

#include "base/memory.h"
#include "comm/watchdog.h"

enum { SHOWN = 400 };

void agree_done(AgreeTable *table) {
    for (size_t i = 0; i < table->count; i++) {
        free(table->row[i].key);
        free(table->row[i].shown);
    }
    free(table->row);
    *table = (AgreeTable){0};
}

Status agree_add(AgreeTable *table, const char *key, const char *shown, bool given) {
    CLEANUP(mem_freep) char *own_key = NULL, *own_shown = NULL;
    TRY(str_dup(key, &own_key));
    TRY(str_dup(shown, &own_shown));
    TRY(mem_grow(&table->row, &table->capacity, table->count + 1, sizeof *table->row));
    table->row[table->count++] = (AgreeRow){own_key, own_shown, given};
    own_key = own_shown = NULL;
    return OK;
}

/* FNV-1a over the keys, each with its NUL. */
static uint64_t hash_of(const AgreeTable *table) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < table->count; i++) {
        const char *key = table->row[i].key;
        for (size_t at = 0; at <= strlen(key); at++) hash = (hash ^ (unsigned char)key[at]) * 0x100000001b3;
    }
    return hash;
}

/* The table as text: key, NUL, + if it was given or else -, what is shown, NUL, and so on. */
static Status pack(const AgreeTable *table, char **ret_text, int64_t *ret_size) {
    size_t size = 0, at = 0;
    for (size_t i = 0; i < table->count; i++)
        size += strlen(table->row[i].key) + strlen(table->row[i].shown) + 3;
    char *text = NULL;
    TRY(mem_new(size + 1, 1, &text));
    for (size_t i = 0; i < table->count; i++) {
        at += (size_t)sprintf(text + at, "%s", table->row[i].key) + 1;
        at += (size_t)sprintf(text + at, "%c%s", table->row[i].given ? '+' : '-', table->row[i].shown) + 1;
    }
    *ret_text = text;
    *ret_size = (int64_t)size;
    return OK;
}

typedef struct Difference {
    int32_t found;
    char first[SHOWN], own[SHOWN]; /* what rank 0 and this rank have */
} Difference;

static bool same_name(const char *a, const char *b) {
    size_t length = strcspn(a, " ");
    return length == strcspn(b, " ") && strncmp(a, b, length) == 0;
}

static Difference compare(const AgreeTable *table, const char *text, int64_t size) {
    const char *end = text + size;
    Difference difference = {0};
    for (size_t i = 0; i < table->count || text < end; i++) {
        const AgreeRow *row = i < table->count ? &table->row[i] : NULL;
        const char *key = text < end ? text : NULL, *shown = key ? key + strlen(key) + 1 : NULL;
        bool differs = !row || !key || strcmp(row->key, key) != 0;
        bool given = (row && row->given) || (key && *shown == '+');
        if (differs && (given || !difference.found)) {
            difference.found = 1;
            snprintf(difference.first, SHOWN, "%s", key ? shown + 1 : "nothing more");
            snprintf(difference.own, SHOWN, "%s", row ? row->shown : "nothing more");
        }
        if (differs && (given || !row || !key || !same_name(row->key, key))) break;
        text = shown + strlen(shown) + 1;
    }
    return difference;
}

/* The tables differ on at least one rank. */
static Status name_difference(Group *world, const AgreeTable *table, const char *advice) {
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(mem_freep) Difference *all = NULL;
    int64_t size = 0;
    if (world->rank == 0) TRY(pack(table, &text, &size));
    TRY(host_broadcast(world, &size, sizeof size, 0));
    if (world->rank > 0) TRY(mem_new((size_t)size + 1, 1, &text));
    TRY(host_broadcast(world, text, (size_t)size, 0));
    Difference own = compare(table, text, size);
    TRY(mem_new((size_t)world->size, sizeof *all, &all));
    TRY(host_gather(world, all, &own, sizeof own));
    int rank = 0;
    while (rank < world->size && !all[rank].found) rank++;
    if (rank == world->size) return FAILED("internal: ranks differ in nothing");
    char here[HOST_SIZE], there[HOST_SIZE];
    return USAGE("the ranks differ: rank 0 on %s has %s, but rank %d on %s has %s; %s",
                 group_host(world, 0, here), all[rank].first, rank, group_host(world, rank, there),
                 all[rank].own, advice);
}

Status agree_check(Group *world, const AgreeTable *table, const char *advice) {
    CLEANUP(mem_freep) uint64_t *all = NULL;
    uint64_t own = hash_of(table);
    if (world->size == 1) return OK;
    TRY(mem_new((size_t)world->size, sizeof *all, &all));
    TRY(host_gather(world, all, &own, sizeof own));
    for (int r = 0; r < world->size; r++)
        if (all[r] != all[0]) return name_difference(world, table, advice);
    return OK;
}
