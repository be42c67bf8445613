/* Where the charts of a page are written as files. Every page has a directory of its own beside it:
 * report.html has figures, NAME.html has NAME-figures. A list in the directory names the page and the files
 * that weft wrote; no other file is overwritten or deleted. A directory that belongs to someone else is left
 * alone, and the page takes NAME-figures, NAME-figures-2 and so on. */
#ifndef WEFT_REPORT_FIGURE_FILES_H
#define WEFT_REPORT_FIGURE_FILES_H

#include "base/status.h"

#define FIGURE_LIST ".weft.json" /* in the directory */

/* Finds or makes the page's directory, and deletes the charts of the page's earlier version. *ret_dir is NULL
 * if the page goes to a device or FIFO, which has no charts beside it. */
MUST_USE Status figure_files_begin(const char *page, char **ret_dir);
/* Lists the charts that are in the directory now; removes it if there are none. `dir` may be NULL. */
MUST_USE Status figure_files_end(const char *page, const char *dir);
/* The directory of a page that was written; NULL if it has no charts. The caller frees it. */
MUST_USE Status figure_files_find(const char *page, char **ret_dir);

#endif
