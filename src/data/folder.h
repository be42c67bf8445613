/* The data files of a directory, such as a copy of a data set from a hub. */
#ifndef WEFT_DATA_FOLDER_H
#define WEFT_DATA_FOLDER_H

#include "base/fs.h"

typedef enum FolderPart { FOLDER_TRAIN, FOLDER_VAL } FolderPart;

typedef struct FolderFiles {
    char **path; /* sorted */
    size_t count, capacity;
} FolderFiles;

/* Lists the files with rows or text of one kind: Parquet, else JSON lines, .csv, .tsv, .json or .txt. If
 * names begin with those of splits (train, val, valid, dev, test), only those of a part: "train", or the
 * first of the others that there is. None if the directory has token files or a model. */
MUST_USE Status folder_list(const char *dir, FolderPart part, FolderFiles *ret_files);
void folder_files_done(FolderFiles *files);

#endif
