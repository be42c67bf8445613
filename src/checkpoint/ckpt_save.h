/* The phases of saving a run's checkpoint (ckpt.c). ckpt_save runs them one after the other; background.h
 * writes the tensors while training continues. */
#ifndef WEFT_CHECKPOINT_CKPT_SAVE_H
#define WEFT_CHECKPOINT_CKPT_SAVE_H

#include "checkpoint/hf_save.h"

enum { PROGRESS_FORMAT = 1 /* of weft.json */, STATE_NAME = PARAM_NAME + 64 };

typedef struct CkptSave {
    const CheckpointState *state;
    int64_t step;
    int keep;
    bool first;     /* this is the first rank */
    bool published; /* the directory has its final name */
    char *run_dir, *checkpoints, *temporary, *link, *target;
    SaveOptions options;
    HfManifest manifest;
    SaveList list; /* the tensors to write */
} CkptSave;

/* Starts a checkpoint: lists its tensors; the first rank clears leftovers and creates the files. The state
 * must outlive the save. Collective. */
MUST_USE Status ckpt_save_new(CkptSave **ret_save, const char *run_dir, int64_t step,
                              const CheckpointState *state, int keep);
/* On the first rank, after all tensors are written and synced and the list has their checksums: writes the
 * other files, renames the directory, moves the links and removes old checkpoints. Does not communicate; does
 * nothing on other ranks. */
MUST_USE Status ckpt_save_publish(CkptSave *save);
/* Removes what was written, unless it was published, and returns the error to report. Takes ownership of
 * `status`. */
MUST_USE Status ckpt_save_failed(const CkptSave *save, Status status);
void ckpt_save_free(CkptSave *save);
DEFINE_FREEP(CkptSave, ckpt_save)

/* The optimizer's state has the parameter's shape in the model. */
HfTensor checkpoint_state_tensor(const ParamDesc *desc);

/* The name of a tensor in optimizer.safetensors. `writer`: its worker or replica, which `owner` says. */
const char *checkpoint_state_name(char name[STATE_NAME], SaveOwner owner, int writer, const char *kind,
                                  const ParamDesc *desc);
/* The stores that a checkpoint is saved from, in the order of SaveList. Returns their number. */
int ckpt_stores(const CheckpointState *state, const Store **ret_store, SaveOwner *ret_owner);

#endif
