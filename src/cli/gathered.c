#include "cli/invocation.h"

#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/memory.h"
#include "cli/launch.h"
#include "comm/mpi.h"

/* Rank 0's configuration file. */
typedef struct FileNote {
    int64_t size; /* -1: there is none */
    char path[PATH_MAX];
} FileNote;

static bool on_line(int argc, char **argv) {
    bool found = false;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        found |= !strcmp(argv[i], "--" GATHER_OPTION);
        found &= strcmp(argv[i], "--no-" GATHER_OPTION) != 0;
    }
    return found;
}

bool gathered_follows(int argc, char **argv) {
    Launched launched = mpi_launched();
    return launched.launched && launched.rank > 0 && on_line(argc, argv);
}

/* Parses the command line again, with the configuration file that rank 0 has sent. */
static Status receive(const Invocation *call, const FileNote *note, const char *text, int argc, char **argv,
                      Invocation **ret_call) {
    CLEANUP(json_decrefp) json_t *json = NULL;
    if (note->size >= 0) TRY(json_parse(text, (size_t)note->size, note->path, &json));
    return invocation_read_from(ret_call, call->command, argc, argv, note->path, json);
}

static Status share_file(Invocation *call, FileNote *note, char **ret_text) {
    size_t size = 0;
    bool first = call->world->rank == 0;
    note->size = -1;
    if (first && call->config_path) {
        TRY(file_read(call->config_path, CONFIG_LIMIT, ret_text, &size));
        snprintf(note->path, sizeof note->path, "%s", call->config_path);
        note->size = (int64_t)size;
    }
    TRY(host_broadcast(call->world, note, sizeof *note, 0));
    if (!first && note->size > 0) TRY(mem_new((size_t)note->size, 1, ret_text));
    return note->size > 0 ? host_broadcast(call->world, *ret_text, (size_t)note->size, 0) : OK;
}

Status gathered_options(Invocation **call, int argc, char **argv) {
    enum { JOIN_LIMIT = 60 };
    CLEANUP(invocation_freep) Invocation *made = NULL;
    CLEANUP(mem_freep) char *text = NULL;
    CLEANUP(mem_freep) FileNote *note = NULL;
    if (!(*call)->command->resumes || !on_line(argc, argv) || !mpi_launched().launched) return OK;
    TRY(mem_new(1, sizeof *note, &note));
    TRY(launch_connect(*call, JOIN_LIMIT));
    TRY(share_file(*call, note, &text));
    if ((*call)->world->rank == 0) return launch_agree(*call);
    TRY(receive(*call, note, text, argc, argv, &made));
    made->line = (*call)->line;
    made->world = (*call)->world;
    (*call)->world = NULL;
    invocation_free(*call);
    *call = made;
    made = NULL;
    return launch_agree(*call);
}
