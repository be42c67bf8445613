/* Draws the timeline of a pipeline: a row per stage, a box per computation labeled with its micro-batch, and
 * gaps where a stage is idle. */
#ifndef WEFT_PLAN_DRAW_H
#define WEFT_PLAN_DRAW_H

#include "parallel/schedule.h"

typedef struct Timeline {
    const Schedule *stages; /* [count] */
    int count;
    ScheduleTimes times;
    const char *title, *caption; /* for the SVG; UTF-8 */
} Timeline;

/* A complete SVG file with light and dark colors. The caller frees it. */
MUST_USE Status draw_svg(const Timeline *timeline, char **ret_svg);

/* At most `width` columns of text. "F3" starts the forward of micro-batch 3, "B3" its backward or the
 * input-gradient half, "W3" the weight-gradient half. With several chunks per stage a letter follows ("F3b"
 * is the second chunk). Short boxes have shorter labels, and "#" is a column with several kinds of boxes.
 * With `color`, boxes have ANSI background colors. The caller frees *ret_text. */
MUST_USE Status draw_text(const Timeline *timeline, int width, bool color, char **ret_text);

/* Writes text with XML special characters escaped. */
void draw_escaped(const char *text, FILE *out);

#endif
