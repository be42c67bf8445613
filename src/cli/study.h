/* Parts of `weft study`: their command lines, what they need and how long they take. */
#ifndef WEFT_CLI_STUDY_H
#define WEFT_CLI_STUDY_H

#include "cli/command.h"
#include "compare/studyfile.h"

typedef struct StudyArgs {
    const char *out, *device, *cluster, **from;
    int from_count;
    bool simulate, share_gpus, yes, retry, quiet;
} StudyArgs;

/* The command line of a part after the program's name, whose directory is DIR/NAME. `resume`: the part has
 * begun before. */
MUST_USE Status study_line(const StudyArgs *args, const StudyPart *part, const char *dir, bool resume,
                           TextList *line);
/* Checks a part before the first one starts: its command and options. */
MUST_USE Status study_check_part(const StudyArgs *args, const StudyPart *part, const char *dir);
/* Whether its command continues what a stopped one has begun, when it is repeated. */
bool study_part_resumes(const StudyPart *part);

/* What the parts' plans say. */
typedef struct StudyCost {
    double seconds, bytes;
    size_t runs, unknown, simulated; /* runs without a plan, and runs that this machine cannot hold */
} StudyCost;
/* Adds the cost of a part on this machine. */
MUST_USE Status study_add_cost(const StudyArgs *args, const StudyPart *part, StudyCost *cost);

#endif
