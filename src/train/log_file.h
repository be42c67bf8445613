/* A file that a run appends to. A write that fails does not stop the run: what was not written stays in
 * memory, up to a limit, and is written before the next addition. */
#ifndef WEFT_TRAIN_LOG_FILE_H
#define WEFT_TRAIN_LOG_FILE_H

#include "base/progress.h"

typedef struct LogFile LogFile;

/* Creates the file, or with `append` continues it. Problems are reported through `progress`, which may be
 * NULL and must outlive the file. */
MUST_USE Status log_file_new(LogFile **ret_file, const char *path, bool append, Progress *progress);
/* Tries to write what is left, and reports what could not be written. */
void log_file_free(LogFile *file);
DEFINE_FREEP(LogFile, log_file)

/* Tries to write what is left; false if something still is. */
bool log_file_flush(LogFile *file);
/* Appends one record: it is written as a whole, later, or not at all. */
void log_file_add(LogFile *file, const void *data, size_t size);
/* Whether the file was found moved or deleted. */
bool log_file_moved(const LogFile *file);

#endif
