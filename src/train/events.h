/* TensorBoard event files: the values of metrics.jsonl as scalars.
 *
 * A file is a sequence of records: u64 length, u32 checksum of the length, payload, u32 checksum of the
 * payload, all little-endian; checksums are masked CRC-32C. The payload is an Event message of TensorFlow's
 * protocol buffers.
 */
#ifndef WEFT_TRAIN_EVENTS_H
#define WEFT_TRAIN_EVENTS_H

#include "base/json.h"
#include "base/progress.h"

typedef struct Events Events;

/* Creates an event file in `dir`. For a run resumed after `step` it tells TensorBoard to discard later steps
 * of earlier files; for a new run (step 0) earlier event files are removed. `progress` as in log_file.h. */
MUST_USE Status events_new(Events **ret_events, const char *dir, int64_t step, Progress *progress);
void events_free(Events *events);
DEFINE_FREEP(Events, events)

/* Adds the numbers of a metrics line at its "step"; those in nested objects are tagged "outer/inner". */
MUST_USE Status events_add(Events *events, const json_t *line);

/* The masked CRC-32C of a record. */
uint32_t events_checksum(const void *bytes, size_t size);

#endif
