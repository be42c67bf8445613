/* Nodes are stored level by level; the children of a node are contiguous and sorted by byte. A node stores
 * its first child and the number of its children; the first byte is looked up in a table of 256. Most nodes
 * have one or a few children, so a step touches one or two nodes on the same cache line.
 *
 * Construction also goes level by level: a node corresponds to the run of sorted entries that share its
 * prefix, and its children divide that run by the next byte. */
#include "tokenizer/wordpiece_trie.h"

#include <string.h>

#include "base/memory.h"

typedef struct Node {
    uint32_t first; /* index of the first child */
    int32_t id;     /* entry that ends here, or -1 */
    uint16_t count; /* number of children, at most 256 */
    uint8_t byte;
} Node;

struct Trie {
    uint32_t root[256]; /* node indexed by first byte; 0: none, since node 0 is the root */
    Node *nodes;
    size_t count, capacity;
};

/* The entries below a node, during construction. */
typedef struct Run {
    size_t start, end;
} Run;

static int compare(const void *a, const void *b) {
    const TrieEntry *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    return order ? order : (x->size > y->size) - (x->size < y->size);
}

static uint8_t byte_at(const TrieEntry *entry, size_t depth) {
    return (uint8_t)entry->text[depth];
}

/* Appends the children of a node whose entries are `run`, all longer than `depth` bytes. An entry that
 * ends in a child is excluded from the child's run. */
static Status add_children(Trie *trie, Run **runs, size_t *run_capacity, const TrieEntry *entries, Run run,
                           size_t depth) {
    while (run.start < run.end) {
        size_t end = run.start + 1;
        uint8_t byte = byte_at(&entries[run.start], depth);
        while (end < run.end && byte_at(&entries[end], depth) == byte) end++;
        TRY(mem_grow(&trie->nodes, &trie->capacity, trie->count + 1, sizeof *trie->nodes));
        TRY(mem_grow(runs, run_capacity, trie->count + 1, sizeof **runs));
        bool ends = entries[run.start].size == depth + 1;
        trie->nodes[trie->count] = (Node){.byte = byte, .id = ends ? entries[run.start].id : -1};
        (*runs)[trie->count++] = (Run){run.start + ends, end};
        run.start = end;
    }
    return OK;
}

static Status build(Trie *trie, const TrieEntry *entries, size_t count) {
    CLEANUP(mem_freep) Run *runs = NULL;
    size_t run_capacity = 0, depth = 0;
    TRY(mem_grow(&trie->nodes, &trie->capacity, 1, sizeof *trie->nodes));
    TRY(mem_grow(&runs, &run_capacity, 1, sizeof *runs));
    trie->nodes[0] = (Node){.id = -1};
    runs[0] = (Run){0, count};
    trie->count = 1;
    for (size_t level = 0; level < trie->count; depth++) {
        for (size_t level_end = trie->count; level < level_end; level++) {
            size_t first = trie->count;
            TRY(add_children(trie, &runs, &run_capacity, entries, runs[level], depth));
            trie->nodes[level].first = (uint32_t)first;
            trie->nodes[level].count = (uint16_t)(trie->count - first);
        }
    }
    const Node *root = &trie->nodes[0];
    for (uint32_t i = root->first; i < root->first + root->count; i++) trie->root[trie->nodes[i].byte] = i;
    return OK;
}

Status trie_new(Trie **ret_trie, TrieEntry *entries, size_t count) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += entries[i].size;
    if (bytes >= UINT32_MAX) return FAILED("the vocabulary is too large: its pieces take %zu bytes", bytes);
    if (count) qsort(entries, count, sizeof *entries, compare);
    CLEANUP(trie_freep) Trie *trie = NULL;
    TRY(mem_new(1, sizeof *trie, &trie));
    TRY(build(trie, entries, count));
    return MOVE(ret_trie, trie);
}

void trie_free(Trie *trie) {
    if (!trie) return;
    free(trie->nodes);
    free(trie);
}

static uint32_t find_child(const Node *nodes, const Node *node, uint8_t byte) {
    uint32_t low = node->first, high = low + node->count;
    while (high - low > 4) {
        uint32_t middle = low + (high - low) / 2;
        if (nodes[middle].byte <= byte)
            low = middle;
        else
            high = middle;
    }
    for (; low < high; low++)
        if (nodes[low].byte == byte) return low;
    return 0;
}

int32_t trie_longest(const Trie *trie, const char *text, size_t size, size_t *ret_size) {
    int32_t id = -1;
    if (size == 0) return id;
    const unsigned char *bytes = (const unsigned char *)text;
    uint32_t node = trie->root[bytes[0]];
    for (size_t depth = 1; node; depth++) {
        if (trie->nodes[node].id >= 0) {
            id = trie->nodes[node].id;
            *ret_size = depth;
        }
        if (depth == size) break;
        node = find_child(trie->nodes, &trie->nodes[node], bytes[depth]);
    }
    return id;
}
