#include "cli/hosts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs.h"

enum { FILE_LIMIT = 1 << 20, MOST_SLOTS = 1 << 20 };

static const char digits[] = "0123456789", blanks[] = " \t\r";
static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-@:+^[]%";

static const char *option_text(const Invocation *call, const char *name) {
    const Slot *slot = invocation_slot(call, name);
    return slot ? *(const char *const *)slot->field : NULL;
}

void host_list_done(HostList *list) {
    free(list->host);
    free(list->text);
    *list = (HostList){0};
}

/* ---- --hosts ---- */

/* The length of a host's name; an IPv6 address is in brackets. */
static size_t name_length(const char *entry) {
    const char *bracket = *entry == '[' ? strchr(entry, ']') : NULL;
    return bracket ? (size_t)(bracket - entry) + 1 : strcspn(entry, ":");
}

/* Programs would take a name that starts with a dash for an option. */
static bool is_name(const char *name, size_t length) {
    return length && *name != '-' && strspn(name, letters) >= length && strncmp(name, "[]", 2) != 0;
}

static bool read_slots(const char *text, size_t length, int64_t *ret_slots) {
    if (!length || length > 7 || strspn(text, digits) < length) return false;
    *ret_slots = atoll(text);
    return *ret_slots >= 1 && *ret_slots <= MOST_SLOTS;
}

/* "node1" or "node1:4". "*" is Open MPI's word for all cores. Launchers ignore what they do not understand,
 * and start ranks elsewhere. */
static bool parse_entry(char *entry, Host *ret_host) {
    size_t name = name_length(entry);
    char *slots = entry[name] == ':' ? entry + name + 1 : NULL;
    *ret_host = (Host){.name = entry};
    if (!is_name(entry, name) || (entry[name] && !slots)) return false;
    if (slots && strcmp(slots, "*") != 0 && !read_slots(slots, strlen(slots), &ret_host->slots)) return false;
    entry[name] = 0;
    return true;
}

static Status read_line(const char *hosts, HostList *list) {
    TRY(str_dup(hosts, &list->text));
    for (char *entry = list->text, *next; entry; entry = next) {
        next = strchr(entry, ',');
        if (next) *next++ = 0;
        char shown[41];
        snprintf(shown, sizeof shown, "%s", entry);
        if (!parse_entry(entry, &list->host[list->count++]))
            return USAGE(
                "--hosts %s: '%s' is not a host; expected hosts with the number of ranks on each, separated "
                "by commas: node1:4,node2:4",
                hosts, shown);
    }
    return OK;
}

/* ---- --hostfile ---- */

/* Overwrites comments, which begin with # or // or stand between C's marks, with blanks. */
static void clear_comments(char *text) {
    for (char *at = text; *at;) {
        char *end = at;
        if (*at == '#' || !strncmp(at, "//", 2))
            end = at + strcspn(at, "\n");
        else if (!strncmp(at, "/*", 2))
            end = strstr(at + 2, "*/") ? strstr(at + 2, "*/") + 2 : at + strlen(at);
        if (end == at) at++;
        for (; at < end; at++)
            if (*at != '\n') *at = ' ';
    }
}

/* Whether a line can be a host and its settings, "node1 slots=4". Launchers differ in the settings they know,
 * and some ignore words that are none; so this only rejects what none of them accepts. */
static bool is_host_line(const char *line) {
    enum { WORDS = 4 }; /* more without a setting are prose */
    size_t words = 0, settings = 0;
    for (const char *at = line; *(at += strspn(at, blanks));) {
        size_t size = strcspn(at, blanks);
        if (memchr(at, '=', size))
            settings++;
        else if (strspn(at, letters) < size)
            return false;
        words++;
        if (words == 1 && settings) return false;
        at += size;
    }
    return settings || words <= WORDS;
}

/* The number in "slots=4" or "slots = 4"; 0 if a line has neither. */
static bool find_slots(const char *line, int64_t *ret_slots) {
    static const char name[] = "slots";
    for (const char *at = line; *(at += strspn(at, blanks)); at += strcspn(at, blanks)) {
        if (strncmp(at, name, strlen(name)) != 0) continue;
        const char *value = at + strlen(name);
        value += strspn(value, blanks);
        if (*value++ != '=') continue;
        value += strspn(value, blanks);
        return read_slots(value, strcspn(value, blanks), ret_slots);
    }
    return true;
}

/* Without brackets, as host files have it. */
static bool is_ipv6(const char *entry) {
    const char *colon = strchr(entry, ':');
    return colon && strchr(colon + 1, ':') && entry[strspn(entry, "0123456789abcdefABCDEF:")] == 0;
}

/* "node1 slots=4", "node1 slots = 4" or "node1:4". */
static bool parse_line(char *line, Host *ret_host) {
    char *entry = line + strspn(line, blanks), *end = entry + strcspn(entry, blanks);
    int64_t slots = 0;
    if (!is_host_line(line) || !find_slots(end, &slots)) return false;
    *end = 0;
    *ret_host = (Host){.name = entry};
    if (!is_ipv6(entry) && !parse_entry(entry, ret_host)) return false;
    if (slots) ret_host->slots = slots;
    return true;
}

/* The launcher's own messages about a file that it cannot use do not say what is wrong. */
static Status read_file(const char *path, HostList *list) {
    size_t number = 0;
    clear_comments(list->text);
    for (char *line = list->text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        number++;
        if (!line[strspn(line, blanks)]) continue;
        char shown[41];
        snprintf(shown, sizeof shown, "%s", line);
        if (!parse_line(line, &list->host[list->count++]))
            return USAGE("--hostfile %s: line %zu: expected a host such as 'node1 slots=4', found '%s'", path,
                         number, shown);
    }
    return list->count ? OK
                       : USAGE("--hostfile %s: names no host; expected lines such as 'node1 slots=4'", path);
}

Status host_list_read(const Invocation *call, HostList *ret_list) {
    const char *hosts = option_text(call, "hosts"), *file = option_text(call, "hostfile");
    CLEANUP(host_list_done) HostList list = {0};
    struct stat st;
    size_t entries = 1;
    *ret_list = list;
    if (!hosts && !file) return OK;
    if (hosts && file) return USAGE("--hosts and --hostfile cannot be combined; use one or the other");
    if (file && stat(file, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return OK;
    if (file) {
        size_t size;
        Status status = file_read(file, FILE_LIMIT, &list.text, &size);
        if (status) return status_wrap(status, "--hostfile");
        if (strlen(list.text) != size)
            return USAGE("--hostfile %s: has a zero byte; expected text such as 'node1 slots=4'", file);
    }
    for (const char *at = hosts ? hosts : list.text; (at = strpbrk(at, ",\n")); at++) entries++;
    TRY(mem_new(entries, sizeof *list.host, &list.host));
    TRY(hosts ? read_line(hosts, &list) : read_file(file, &list));
    *ret_list = list;
    list = (HostList){0};
    return OK;
}

/* ---- slots ---- */

Status host_list_check(const HostList *list, int64_t ranks) {
    int64_t slots = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (!list->host[i].slots) return OK;
        slots += list->host[i].slots;
    }
    if (!list->count || ranks <= slots) return OK;
    return USAGE(
        "--ranks %lld: the hosts have slots for %lld; raise the numbers in --hosts or the host file, add "
        "hosts, or use fewer ranks",
        (long long)ranks, (long long)slots);
}

static bool same_host(const char *a, const char *b, size_t b_size) {
    size_t a_size = strlen(a);
    const char *a_dot = memchr(a, '.', a_size), *b_dot = memchr(b, '.', b_size);
    if (a_dot && !b_dot) a_size = (size_t)(a_dot - a);
    if (b_dot && !a_dot) b_size = (size_t)(b_dot - b);
    return a_size == b_size && !strncmp(a, b, a_size);
}

bool host_among(const char *host, const char *names) {
    for (const char *at = names; *(at += strspn(at, " "));) {
        size_t length = strcspn(at, " ");
        if (same_host(host, at, length)) return true;
        at += length;
    }
    return false;
}

Status host_list_without(const HostList *list, const char *broken, int64_t ranks, char **ret_hosts) {
    char *text = NULL;
    size_t size = 1, used = 0, dropped = 0;
    int64_t slots = 0;
    *ret_hosts = NULL;
    for (size_t i = 0; i < list->count; i++) size += strlen(list->host[i].name) + 24;
    TRY(mem_new(size, 1, &text));
    for (size_t i = 0; i < list->count; i++) {
        Host host = list->host[i];
        if (host_among(host.name, broken)) {
            dropped++;
            continue;
        }
        if (!host.slots) host.slots = 1;
        slots += host.slots;
        used += (size_t)snprintf(text + used, size - used, "%s%s:%lld", used ? "," : "", host.name,
                                 (long long)host.slots);
    }
    if (dropped && slots >= ranks)
        *ret_hosts = text;
    else
        free(text);
    return OK;
}
