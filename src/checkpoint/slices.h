/* Resharding: moves parameters between files, which contain them completely, and ranks, which hold parts of
 * them.
 *
 * In a file a parameter is one tensor or several (HfTensor), possibly transposed. A rank holds elements of
 * its tensor-parallel slice (ParamSlot). In both directions elements move in runs or small rectangles, so no
 * full copy is made and only the needed part of a file is read. All memory here is host memory.
 */
#ifndef WEFT_CHECKPOINT_SLICES_H
#define WEFT_CHECKPOINT_SLICES_H

#include "checkpoint/hf_names.h"
#include "checkpoint/root_disk.h"
#include "checkpoint/safetensors.h"
#include "model/model.h"

/* Narrows the slot's local elements *from .. *from + *count - 1 to those that can belong to one tensor of the
 * parameter; false if there are none. */
bool slice_narrow(const ParamSlot *slot, const HfTensor *tensor, int64_t *from, int64_t *count);

/* Reads the slot's local elements from .. from + count - 1 into dst from the `parts` tensors that make up the
 * parameter; padding becomes 0. */
MUST_USE Status slice_read(float *dst, const ParamSlot *slot, int64_t from, int64_t count,
                           const HfTensor *wanted, const SafeTensor *const *tensor, int parts);

/* The same if only rank 0 has the tensors; elsewhere their data is not read. Tensors are broadcast in windows
 * of bounded size. `count` may be 0. Collective. */
MUST_USE Status slice_receive(float *dst, const ParamSlot *slot, int64_t from, int64_t count,
                              const HfTensor *wanted, const SafeTensor *const *tensor, int parts,
                              const RootDisk *disk);

/* The reverse of slice_read for one tensor of the parameter: writes those of the slot's local elements from
 * .. from + count - 1, at src, that belong to the tensor. */
MUST_USE Status slice_write(const float *src, const ParamSlot *slot, int64_t from, int64_t count,
                            const HfTensor *tensor, SafeWriter *file, int64_t at, DType dtype);

/* Reads the part of a parameter that a store contains (hf_load.c), from the `parts` tensors that make up the
 * parameter (wanted[i] describes tensor[i]; shapes are checked by the caller). Does nothing if the store has
 * no part of the parameter. `disk`: only rank 0 has the tensors' data, and the call is collective; else NULL.
 */
MUST_USE Status store_read_slot(Store *store, ParamRef ref, const HfTensor *wanted,
                                const SafeTensor *const *tensor, int parts, const RootDisk *disk,
                                Stream *stream);

#endif
