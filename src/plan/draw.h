/* The timeline of a pipeline as a picture: a row for each stage, a box for each computation with the number
 * of its micro-batch in it, and gaps where a stage waits. */
#ifndef WEFT_PLAN_DRAW_H
#define WEFT_PLAN_DRAW_H

#include "parallel/schedule.h"

typedef struct Timeline {
    const Schedule *stages; /* [count] */
    int count;
    const ScheduleTimes *times;
    const char *title, *caption; /* for the SVG; UTF-8 */
} Timeline;

/* A whole SVG file, for light and dark pages. To free. */
MUST_USE Status draw_svg(const Timeline *timeline, char **ret_svg);

/* At most `width` columns: "F3" starts a forward of micro-batch 3, "B3" a backward or its input half, "W3" a
 * weight half; a letter follows the number where a stage has several chunks ("F3b" is the second). Small
 * boxes have less of this, and "#" is a column of several boxes. With color, boxes have backgrounds. To free.
 */
MUST_USE Status draw_text(const Timeline *timeline, int width, bool color, char **ret_text);

/* A text as SVG has it between tags. */
void draw_escaped(const char *text, FILE *out);

#endif
