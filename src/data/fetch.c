/* Fetches a set file by file, holding a lock on its directory. Existing files are verified; missing ones come
 * from the official source, its mirrors or those that the user names; archives are unpacked. fetched.json is
 * updated after each file. An existing file with the wrong checksum is never replaced, because the user may
 * have changed it. */
#include "data/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "data/fetch_part.h"
#include "data/zip.h"

enum { WAIT_US = 100000 };

const char *const fetch_proof_names[] = {"published", "recorded", "stated", "first", "archive"};

typedef struct Job {
    const FetchSet *set;
    const FetchSpec *spec;
    Fetched *fetched;
    Http *http; /* NULL: not needed so far */
    char *record_path;
    json_t *record;
    char *lock_path;
    int lock;
} Job;

/* A directory that would hold nothing but the lock is removed with it: it would hide what has the set's name,
 * such as a preset. */
static void job_done(Job *job) {
    http_free(job->http);
    json_decref(job->record);
    free(job->record_path);
    if (job->lock >= 0) {
        (void)unlink(job->lock_path);
        if (job->fetched->dir) (void)rmdir(job->fetched->dir);
        close(job->lock);
    }
    free(job->lock_path);
}

void fetched_done(Fetched *fetched) {
    for (size_t i = 0; i < fetched->count; i++) {
        free(fetched->files[i].name);
        free(fetched->files[i].path);
        free(fetched->files[i].from);
    }
    free(fetched->files);
    free(fetched->dir);
    *fetched = (Fetched){0};
}

Status fetch_root(char **ret_root) {
    const char *own = getenv("WEFT_DATA");
    if (own && *own) return str_dup(own, ret_root);
    CLEANUP(mem_freep) char *cache = NULL;
    TRY(user_cache(&cache));
    if (!cache) return USAGE("no directory to store data in: set WEFT_DATA to a directory, or use {out}");
    return path_join(ret_root, cache, "data");
}

/* ---- fetched.json ---- */

static Status record_load(Job *job) {
    TRY(path_join(&job->record_path, job->fetched->dir, "fetched.json"));
    if (path_exists(job->record_path)) {
        TRY(json_read_file(job->record_path, &job->record));
        if (!json_is_object(job->record))
            return FAILED("%s: expected an object that lists the fetched files", job->record_path);
        return OK;
    }
    job->record = json_object();
    return job->record ? OK : FAILED("out of memory while reading %s", job->record_path);
}

/* The SHA-256 recorded at the first download; NULL: not recorded. */
static Status record_sum(const Job *job, const char *name, const char **ret_sum) {
    const json_t *entry = json_object_get(job->record, name);
    *ret_sum = NULL;
    if (!entry) return OK;
    if (!json_is_object(entry)) return FAILED("%s: '%s' is not an object", job->record_path, name);
    return json_get_string(entry, job->record_path, "sha256", ret_sum);
}

static Status record_add(const Job *job, const FetchedFile *file, const char *from) {
    const char *known;
    TRY(record_sum(job, file->name, &known));
    if (known && !strcmp(known, file->sha256)) return OK;
    json_t *entry =
        json_pack("{s:I, s:s, s:s}", "size", (json_int_t)file->size, "sha256", file->sha256, "from", from);
    if (!entry || json_object_set_new(job->record, file->name, entry) != 0)
        return FAILED("out of memory while recording %s", file->path);
    return json_write_file(job->record_path, job->record);
}

/* ---- files ---- */

/* Appends an entry to the list of files, with its name and path. */
static Status next_file(Job *job, const char *name, FetchedFile **ret_file) {
    Fetched *fetched = job->fetched;
    TRY(mem_grow(&fetched->files, &fetched->capacity, fetched->count + 1, sizeof *fetched->files));
    FetchedFile *file = &fetched->files[fetched->count];
    *file = (FetchedFile){0};
    TRY(str_dup(name, &file->name));
    fetched->count++;
    TRY(path_join(&file->path, fetched->dir, name));
    *ret_file = file;
    return OK;
}

/* Verifies a file that already exists. */
static Status verify(const Job *job, const char *published, FetchedFile *file) {
    const char *recorded;
    TRY(record_sum(job, file->name, &recorded));
    TRY(part_sum(job->spec, file->path, &file->size, file->sha256));
    file->was_there = true;
    const char *expected = published ? published : recorded;
    file->proof = published ? FETCH_PUBLISHED : recorded ? FETCH_RECORDED : FETCH_FIRST;
    if (!expected || !strcmp(expected, file->sha256)) return OK;
    return FAILED("%s already exists, but its SHA-256 is %s instead of %s; delete it to download it again",
                  file->path, file->sha256, expected);
}

/* ---- sources ---- */

/* A URL or path at which a file may be. */
typedef struct Source {
    char *from;
    bool inside; /* only another place on the previous source */
    Status failure;
    PartFailure why; /* of the failure */
} Source;

typedef struct Sources {
    Source *items;
    size_t count, capacity;
} Sources;

static void sources_done(Sources *sources) {
    for (size_t i = 0; i < sources->count; i++) {
        free(sources->items[i].from);
        status_free(sources->items[i].failure);
    }
    free(sources->items);
}

/* Adds BASE/FOLDER/NAME; parts may be empty or end with a slash. */
static Status add_source(Sources *sources, const char *base, const char *folder, const char *name) {
    CLEANUP(mem_freep) char *from = NULL;
    TRY(mem_grow(&sources->items, &sources->capacity, sources->count + 1, sizeof *sources->items));
    TRY(*folder ? path_join(&from, base, folder) : str_dup(base, &from));
    Source *source = &sources->items[sources->count];
    *source = (Source){0};
    TRY(*name ? path_join(&source->from, from, name) : str_dup(from, &source->from));
    sources->count++;
    return OK;
}

/* The places where a file may be, in the order in which they are tried. */
static Status list_sources(const Job *job, const FetchFile *file, Sources *sources) {
    const FetchSpec *spec = job->spec;
    for (int i = 0; i < spec->from_count; i++) {
        TRY(add_source(sources, spec->from[i], job->set->name, file->name));
        if (!spec->from_flat) continue;
        TRY(add_source(sources, spec->from[i], "", file->name));
        sources->items[sources->count - 1].inside = true;
    }
    if (spec->from_count) return OK;
    TRY(add_source(sources, job->set->home, "", file->name));
    for (size_t i = 0; i < spec->mirror_count; i++) {
        const FetchMirror *mirror = &spec->mirrors[i];
        const char *rest = fetch_mirrored(mirror, job->set->home);
        if (rest) TRY(add_source(sources, mirror->at, rest, file->name));
        if (file->sha256 && !strcmp(mirror->of, file->sha256)) TRY(add_source(sources, mirror->at, "", ""));
    }
    return OK;
}

static Status fetch_from(Job *job, const FetchFile *known, const char *from, int retries, FetchedFile *file,
                         PartFailure *ret_why) {
    const char *recorded;
    *ret_why = PART_HERE;
    TRY(record_sum(job, known->name, &recorded));
    bool is_url = http_is_url(from);
    if (is_url && !job->http) TRY(http_new(&job->http));
    PartSpec part = {.fetch = job->spec,
                     .file = known,
                     .path = file->path,
                     .from = from,
                     .http = is_url ? job->http : NULL,
                     .expected = known->sha256 ? known->sha256 : recorded,
                     .recorded = !known->sha256,
                     .limit = job->set->about ? 2 * job->set->about : PART_LIMIT,
                     .retries = retries};
    TRY(part_fetch(&part, file, ret_why));
    TRY(str_dup(from, &file->from));
    return record_add(job, file, from);
}

/* Whether a failure says something that the next one does not. A file that is neither in the set's
 * subdirectory of a mirror nor at its top level is reported with its regular location. */
static bool is_telling(const Sources *sources, size_t i) {
    const Source *source = &sources->items[i], *next = i + 1 < sources->count ? source + 1 : NULL;
    if (source->inside) return source->why != PART_ABSENT && source->failure;
    return !next || !next->inside || !next->failure || next->why == PART_ABSENT;
}

/* One failure that says what every source answered. */
static Status all_failed(const FetchFile *known, Sources *sources) {
    CLEANUP(mem_freep) char *text = NULL;
    size_t size = 0, said = 0, last = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory while fetching %s", known->name);
    for (size_t i = 0; i < sources->count; i++) {
        if (!is_telling(sources, i)) continue;
        last = i;
        fprintf(out, "%s%s", said++ ? "; " : "", status_message(sources->items[i].failure));
    }
    if (fclose(out) != 0) return FAILED("out of memory while fetching %s", known->name);
    if (said > 1) return FAILED("%s: all %zu sources failed: %s", known->name, said, text);
    Status only = sources->items[last].failure;
    sources->items[last].failure = NULL;
    return only;
}

/* Whether a source is worth an attempt: it is the first, or it may have recovered. */
static bool is_open(const Sources *sources, size_t i) {
    const Source *source = &sources->items[i];
    if (source->inside && source[-1].why != PART_ABSENT) return false;
    return !source->failure || source->why == PART_TEMPORARY;
}

/* Tries the sources in turn, with so many retries each. *ret_again: some may recover. */
static Status try_sources(Job *job, const FetchFile *known, Sources *sources, int retries, FetchedFile *file,
                          bool *ret_again) {
    const FetchSpec *spec = job->spec;
    const Source *failed = NULL;
    *ret_again = false;
    for (size_t i = 0; i < sources->count; i++) {
        Source *source = &sources->items[i];
        if (!is_open(sources, i)) continue;
        if (failed && !source->inside && !spec->quiet)
            fprintf(spec->log, "%s; trying %s\n", status_message(failed->failure), source->from);
        status_free(source->failure);
        source->failure = fetch_from(job, known, source->from, retries, file, &source->why);
        if (!source->failure) return OK;
        if (source->why == PART_HERE) {
            Status failure = source->failure;
            source->failure = NULL;
            return failure;
        }
        *ret_again |= source->why == PART_TEMPORARY;
        if (!source->inside || source->why != PART_ABSENT) failed = source;
    }
    return all_failed(known, sources);
}

/* As long as there are others, a source gets one more attempt after a temporary failure. If all have failed,
 * those that may recover get as many as the user allows. */
static Status fetch_file(Job *job, const FetchFile *known, FetchedFile *file) {
    CLEANUP(sources_done) Sources sources = {0};
    int all = job->spec->retries;
    bool again;
    TRY(list_sources(job, known, &sources));
    bool alone = sources.count == 1 || (sources.count == 2 && sources.items[1].inside);
    Status status = try_sources(job, known, &sources, alone || all < 1 ? all : 1, file, &again);
    if (status && again && !alone && all > 1) {
        status_free(status);
        status = try_sources(job, known, &sources, all, file, &again);
    }
    return status ? part_resumable(file->path, status) : OK;
}

/* ---- archives ---- */

typedef struct Sink {
    FileWriter *writer; /* NULL: only the hash is needed */
    Sha256 hash;
    const volatile sig_atomic_t *stop;
} Sink;

static Status sink_take(void *user, const void *data, size_t size) {
    Sink *sink = user;
    if (sink->stop && *sink->stop) return STOPPED("stopped by a signal");
    sha256_add(&sink->hash, data, size);
    return sink->writer ? file_write(sink->writer, data, size) : OK;
}

static Status unpack(const Job *job, const Zip *zip, const char *name, const char *to,
                     char sum[SHA256_TEXT]) {
    CLEANUP(file_writer_freep) FileWriter *writer = NULL;
    size_t member;
    TRY(zip_find(zip, name, &member));
    if (to) TRY(file_writer_new(&writer, to));
    Sink sink = {.writer = writer, .stop = job->spec->stop};
    sha256_init(&sink.hash);
    TRY(zip_unpack(zip, member, sink_take, &sink));
    sha256_text(&sink.hash, sum);
    return writer ? file_commit(writer) : OK;
}

/* Unpacks one member. An existing file that is not recorded is compared with the archive. */
static Status ensure_member(Job *job, const Zip *zip, const FetchFile *archive, const char *name) {
    FetchedFile *file;
    const char *recorded;
    size_t member;
    TRY(next_file(job, name, &file));
    TRY(record_sum(job, name, &recorded));
    if (path_exists(file->path)) {
        char sum[SHA256_TEXT];
        if (!recorded) TRY(unpack(job, zip, name, NULL, sum));
        TRY(verify(job, recorded ? recorded : sum, file));
    } else {
        TRY(zip_find(zip, name, &member));
        TRY(unpack(job, zip, name, file->path, file->sha256));
        file->size = zip_size(zip, member);
    }
    file->proof = FETCH_ARCHIVE;
    return record_add(job, file, archive->name);
}

static Status unpack_all(Job *job, const FetchFile *archive, const char *path) {
    CLEANUP(zip_freep) Zip *zip = NULL;
    TRY(zip_open(&zip, path));
    for (const char *const *name = archive->members; *name; name++)
        TRY(ensure_member(job, zip, archive, *name));
    return OK;
}

/* ---- sets ---- */

/* Whether the lock is on the file that has its path now, and not on one that its owner has removed. */
static bool holds_lock(const Job *job) {
    struct stat held, there;
    return !fstat(job->lock, &held) && !stat(job->lock_path, &there) && held.st_ino == there.st_ino &&
           held.st_dev == there.st_dev;
}

static Status acquire_lock(Job *job) {
    TRY(path_join(&job->lock_path, job->fetched->dir, ".lock"));
    for (bool told = false; job->lock < 0 || !holds_lock(job);) {
        if (job->lock >= 0) close(job->lock);
        TRY(dir_make(job->fetched->dir));
        job->lock = open(job->lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (job->lock < 0 && errno == ENOENT) continue; /* the directory was just removed */
        if (job->lock < 0) return FAILED("%s: cannot write: %s", job->lock_path, strerror(errno));
        for (; flock(job->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; told = true) {
            if (!told && !job->spec->quiet)
                fprintf(job->spec->log, "waiting for another process that is fetching %s\n", job->set->name);
            if (job->spec->stop && *job->spec->stop) {
                close(job->lock);
                job->lock = -1;
                return STOPPED("stopped by a signal");
            }
            usleep(WAIT_US);
        }
    }
    return OK;
}

static Status ensure_file(Job *job, const FetchFile *known) {
    FetchedFile *file;
    TRY(next_file(job, known->name, &file));
    if (path_exists(file->path)) {
        TRY(verify(job, known->sha256, file));
        TRY(record_add(job, file, "found"));
    } else {
        TRY(fetch_file(job, known, file));
    }
    return known->members ? unpack_all(job, known, file->path) : OK;
}

static Status fetch_all(Job *job) {
    TRY(path_join(&job->fetched->dir, job->spec->root, job->set->name));
    TRY(acquire_lock(job));
    TRY(record_load(job));
    for (size_t i = 0; i < job->set->file_count; i++) TRY(ensure_file(job, &job->set->files[i]));
    return OK;
}

Status fetch_set(const FetchSet *set, const FetchSpec *spec, Fetched *ret_fetched) {
    CLEANUP(fetched_done) Fetched fetched = {0};
    CLEANUP(job_done) Job job = {.set = set, .spec = spec, .fetched = &fetched, .lock = -1};
    TRY(fetch_all(&job));
    return MOVE(ret_fetched, fetched);
}
