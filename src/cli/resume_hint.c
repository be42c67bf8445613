#include "cli/resume_hint.h"

#include <string.h>

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "cli/launch.h"
#include "cli/show.h"
#include "comm/mpi.h"

/* Under a launcher that the user started, the command line is only a part of what to repeat. */
static Status command_text(const Invocation *call, char **ret_text) {
    size_t size = 0;
    char *text = NULL;
    if (mpi_launched().launched && !launch_is_ours())
        return str_dup("start the job again with --resume", ret_text);
    FILE *out = open_memstream(&text, &size);
    if (!out) return FAILED("out of memory");
    bool resumes = false, from = false;
    char **word = call->line;
    for (; *word && strcmp(*word, "--"); word++) { /* operands follow */
        resumes |= strcmp(*word, "--resume") == 0;
        from |= strncmp(*word, "--resume-from", strlen("--resume-from")) == 0;
        if (word != call->line) fputc(' ', out);
        show_word(out, *word);
    }
    if (from) fputs(" --resume-from 0", out); /* not that step again */
    if (!resumes) fputs(" --resume", out);
    for (; *word; word++) {
        fputc(' ', out);
        show_word(out, *word);
    }
    fclose(out);
    *ret_text = text;
    return OK;
}

/* NULL if the command has none. */
static const char *run_directory(const Invocation *call) {
    const Slot *out = call->command->resumes ? invocation_slot(call, "out") : NULL;
    return out ? *(const char *const *)out->field : NULL;
}

bool resume_finds(const Invocation *call) {
    CLEANUP(mem_freep) char *dir = NULL;
    const char *run = run_directory(call);
    if (!run || !*(const bool *)invocation_slot(call, "resume")->field) return false;
    CLEANUP(status_freep) Status unreadable = ckpt_latest(run, &dir);
    return dir != NULL;
}

Status resume_hint(const Invocation *call, char **ret_text) {
    CLEANUP(mem_freep) char *dir = NULL, *command = NULL;
    const char *run = run_directory(call);
    if (!run) return str_dup("", ret_text);
    CLEANUP(status_freep) Status unreadable = ckpt_latest(run, &dir);
    if (!dir) return str_format(ret_text, "; %s has no checkpoint yet", run);
    TRY(command_text(call, &command));
    return str_format(ret_text, "; the newest checkpoint is %s; to continue: %s", dir, command);
}
