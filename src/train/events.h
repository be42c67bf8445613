/* Event files, which TensorBoard reads: the numbers of metrics.jsonl once more, as scalars.
 *
 * A file is a sequence of records: u64 length, u32 checksum of it, that many bytes, u32 checksum of those,
 * all little-endian; checksums are CRC-32C, masked. The bytes are an Event of TensorFlow's protocol buffers.
 */
#ifndef WEFT_TRAIN_EVENTS_H
#define WEFT_TRAIN_EVENTS_H

#include "base/json.h"

typedef struct Events Events;

/* A new file in the directory `dir`. A run that goes on after `step` tells TensorBoard to forget what earlier
 * files say of later steps; one that begins (0) removes them. */
MUST_USE Status events_new(Events **ret_events, const char *dir, int64_t step);
void events_free(Events *events);
DEFINE_FREEP(Events, events)

/* The numbers of a line of metrics, those in objects inside it as "outer/inner", at its "step". */
MUST_USE Status events_add(Events *events, const json_t *line);

/* Of bytes, as records have it. */
uint32_t events_checksum(const void *bytes, size_t size);

#endif
