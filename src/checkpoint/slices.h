/* Parameters between files, which hold them whole, and ranks, which hold parts of them.
 *
 * A parameter is one tensor of a file, or several (HfTensor), perhaps turned. A rank holds elements of its
 * tensor-parallel slice (ParamSlot). Both ways elements move in runs or in small rectangles, so no whole
 * copy is made and only the part of a file that is asked for is touched. Memory here is the host's.
 */
#ifndef WEFT_CHECKPOINT_SLICES_H
#define WEFT_CHECKPOINT_SLICES_H

#include "checkpoint/hf_names.h"
#include "checkpoint/safetensors.h"
#include "device/device.h"

/* dst[0 ...] = the slot's local elements from .. from + count - 1, of the `parts` tensors that hold the
 * parameter; padding is zero. */
MUST_USE Status slice_read(float *dst, const ParamSlot *slot, int64_t from, int64_t count,
                           const HfTensor *wanted, const SafeTensor *const *tensor, int parts);

/* A parameter as the slices of all tensor ranks. */
typedef struct Slices {
    int count;
    const ParamSlot **slot;
    const float **data; /* each slot's first element */
} Slices;

/* Writes one tensor of the parameter, as dtype, from byte `at` of the file's data on. */
MUST_USE Status slices_write(const Slices *slices, const HfTensor *tensor, SafeWriter *file, int64_t at,
                             DType dtype);

/* Device memory for the host to read: itself where the host can, else a copy, which is the caller's. */
MUST_USE Status host_read(Stream *stream, const float *data, int64_t count, float **ret_copy,
                          const float **ret_data);
/* Host memory to put what a device gets: itself where the host can, else room, which is the caller's and
 * is copied by host_written. */
MUST_USE Status host_write(Stream *stream, float *data, int64_t count, float **ret_room, float **ret_data);
MUST_USE Status host_written(Stream *stream, float *data, int64_t count, const float *room);

#endif
