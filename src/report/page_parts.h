/* The page of `weft study`: the findings of all parts, then each part in a section with its tables and
 * figures. */
#ifndef WEFT_REPORT_PAGE_PARTS_H
#define WEFT_REPORT_PAGE_PARTS_H

#include "report/page.h"

#define PART_LEFT_OUT "left out"

/* Writes DIR/report.html. The parts' own pages have their figures as files. `study` is the contents of
 * DIR/study.json: {"title", "about", "hardware", "scale", "line", "parts": [{"name", "title", "command",
 * "line", "state", "error", "seconds"}, ...]}, whose states are those of runs (run_state_name) or
 * PART_LEFT_OUT. DIR/NAME is a part's directory, and DIR/NAME.txt what it printed. */
MUST_USE Status page_write_parts(const json_t *study, const char *dir);

/* The findings of all parts, as findings_json has them, each with its part's title as "part". Files that are
 * damaged are left out; on the page, their part says what is wrong with them. */
MUST_USE Status parts_findings(const json_t *study, const char *dir, json_t **ret_findings);

#endif
