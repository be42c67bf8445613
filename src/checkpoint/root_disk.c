#include "checkpoint/root_disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/adapter.h"
#include "checkpoint/checksums.h"
#include "checkpoint/hf_files.h"
#include "tokenizer/tokenizer.h"

enum { NAME = 256, CHUNK = 4 << 20, LENGTH_BYTES = 8 };

/* A file to mirror: its size, and how much of it is sent. */
typedef struct MirrorFile {
    char name[NAME];
    int64_t size, sent;
} MirrorFile;

typedef struct MirrorList {
    MirrorFile *file;
    size_t count, capacity;
} MirrorList;

static void mirror_list_done(MirrorList *list) {
    free(list->file);
}

Status root_disk_new(RootDisk **ret_disk, Group *group, Device *device) {
    CLEANUP(root_disk_freep) RootDisk *disk = NULL;
    TRY(mem_new(1, sizeof *disk, &disk));
    disk->group = group;
    if (!device_is_host(device)) TRY(device_new_cpu(&disk->own, 1));
    disk->device = disk->own ? disk->own : device;
    TRY(stream_new(&disk->stream, disk->device));
    return MOVE(ret_disk, disk);
}

void root_disk_free(RootDisk *disk) {
    if (!disk) return;
    stream_free(disk->stream);
    device_free(disk->own);
    free(disk);
}

/* ---- what to send ---- */

/* The files that a model, a tokenizer or a checkpoint consists of. */
static bool is_wanted(const char *name) {
    static const char *const names[] = {"config.json", "generation_config.json", CHECKPOINT_STATE, HF_INDEX,
                                        ADAPTER_CONFIG};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return true;
    return path_ends_with(name, ".safetensors") || tokenizer_is_file(name);
}

/* A header that makes no sense is left to the reader on rank 0. */
static int64_t header_size(const FileMap *map) {
    uint64_t length = 0;
    if (map->size < LENGTH_BYTES) return (int64_t)map->size;
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)map->data[i] << (8 * i);
    return length > map->size - LENGTH_BYTES ? LENGTH_BYTES : (int64_t)length + LENGTH_BYTES;
}

static Status add_file(const char *dir, const char *name, MirrorList *list) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(file_map_done) FileMap map = {0};
    struct stat info;
    TRY(path_join(&path, dir, name));
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || strlen(name) >= NAME) return OK;
    TRY(file_map_init(&map, path));
    TRY(mem_grow(&list->file, &list->capacity, list->count + 1, sizeof *list->file));
    MirrorFile *file = &list->file[list->count++];
    *file = (MirrorFile){.size = (int64_t)map.size, .sent = (int64_t)map.size};
    snprintf(file->name, NAME, "%s", name);
    if (path_ends_with(name, ".safetensors")) file->sent = header_size(&map);
    return OK;
}

/* `also`: a file that counts whatever its name; may be NULL. */
static Status list_files(const char *dir, const char *also, MirrorList *list) {
    DIR *stream = opendir(dir);
    if (!stream) return FAILED("%s: cannot read directory: %s", dir, strerror(errno));
    Status status = OK;
    for (struct dirent *entry; !status && (entry = readdir(stream));)
        if (is_wanted(entry->d_name) || (also && !strcmp(entry->d_name, also)))
            status = add_file(dir, entry->d_name, list);
    closedir(stream);
    return status;
}

/* ---- sending ---- */

static Status write_chunk(int fd, const char *path, const unsigned char *data, int64_t size) {
    for (int64_t at = 0; at < size;) {
        ssize_t wrote = write(fd, data + at, (size_t)(size - at));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) return FAILED("%s: cannot write: %s", path, strerror(errno));
        at += wrote;
    }
    return OK;
}

static Status receive_file(const RootDisk *disk, const char *dir, const MirrorFile *file,
                           unsigned char *chunk) {
    CLEANUP(mem_freep) char *path = NULL;
    TRY(path_join(&path, dir, file->name));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return FAILED("%s: cannot write: %s", path, strerror(errno));
    Status status = OK;
    for (int64_t at = 0; !status && at < file->sent; at += CHUNK) {
        int64_t size = file->sent - at < CHUNK ? file->sent - at : CHUNK;
        status = host_broadcast(disk->group, chunk, (size_t)size, 0);
        if (!status) status = write_chunk(fd, path, chunk, size);
    }
    if (!status && ftruncate(fd, (off_t)file->size) != 0)
        status = FAILED("%s: cannot write: %s", path, strerror(errno));
    close(fd);
    return status;
}

static Status send_file(const RootDisk *disk, const char *dir, const MirrorFile *file, unsigned char *chunk) {
    CLEANUP(mem_freep) char *path = NULL;
    CLEANUP(file_map_done) FileMap map = {0};
    TRY(path_join(&path, dir, file->name));
    TRY(file_map_init(&map, path));
    if ((int64_t)map.size < file->sent) return FAILED("%s changed while it was being read", path);
    for (int64_t at = 0; at < file->sent; at += CHUNK) {
        int64_t size = file->sent - at < CHUNK ? file->sent - at : CHUNK;
        memcpy(chunk, map.data + at, (size_t)size);
        TRY(host_broadcast(disk->group, chunk, (size_t)size, 0));
    }
    return OK;
}

static Status exchange(Mirror *mirror, const RootDisk *disk, const char *dir, MirrorList *list) {
    CLEANUP(mem_freep) unsigned char *chunk = NULL;
    uint64_t count = list->count;
    bool first = disk->group->rank == 0;
    TRY(host_broadcast(disk->group, &count, sizeof count, 0));
    TRY(mem_new(CHUNK, 1, &chunk));
    if (!first) {
        TRY(mem_new((size_t)count, sizeof *list->file, &list->file));
        TRY(dir_make_temporary(&mirror->temporary));
    }
    if (count) TRY(host_broadcast(disk->group, list->file, (size_t)count * sizeof *list->file, 0));
    for (size_t i = 0; i < count; i++)
        TRY(first ? send_file(disk, dir, &list->file[i], chunk)
                  : receive_file(disk, mirror->temporary, &list->file[i], chunk));
    return OK;
}

Status mirror_init(Mirror *ret_mirror, const RootDisk *disk, const char *path) {
    CLEANUP(mirror_done) Mirror mirror = {0};
    CLEANUP(mirror_list_done) MirrorList list = {0};
    CLEANUP(mem_freep) char *dir = NULL;
    struct {
        int kind;        /* 0: absent, 1: directory, 2: file */
        char name[NAME]; /* of the file */
    } found = {0};
    if (disk->group->rank == 0 && path_exists(path)) {
        const char *slash = strrchr(path, '/');
        found.kind = path_is_dir(path) ? 1 : 2;
        TRY(str_dup(path, &mirror.path));
        if (found.kind == 2) snprintf(found.name, NAME, "%s", slash ? slash + 1 : path);
        TRY(found.kind == 1
                ? str_dup(path, &dir)
                : str_format(&dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : "."));
        TRY(list_files(dir, found.kind == 2 ? found.name : NULL, &list));
    }
    TRY(host_broadcast(disk->group, &found, sizeof found, 0));
    if (found.kind) TRY(exchange(&mirror, disk, dir, &list));
    if (found.kind && disk->group->rank)
        TRY(found.kind == 1 ? str_dup(mirror.temporary, &mirror.path)
                            : path_join(&mirror.path, mirror.temporary, found.name));
    return MOVE(ret_mirror, mirror);
}

void mirror_clear(Mirror *mirror) {
    if (mirror->temporary) status_free(dir_remove(mirror->temporary));
    mem_freep(&mirror->temporary);
}

void mirror_done(Mirror *mirror) {
    mirror_clear(mirror);
    mem_freep(&mirror->path);
}
