/* Checksums of a checkpoint's tensors, kept in its weft.json:
 *
 *   "checksums": {"model.safetensors": {"TENSOR": "e3069283", ...}, "optimizer.safetensors": {...}},
 *   "seal": "0a1b2c3d"
 *
 * Each is the CRC-32C of the tensor's bytes in the file; the seal is that of weft.json's other members. As
 * one file has the checksums of weights and optimizer state together with the step, files of different
 * checkpoints cannot be mixed. */
#ifndef WEFT_CHECKPOINT_CHECKSUMS_H
#define WEFT_CHECKPOINT_CHECKSUMS_H

#include "base/json.h"
#include "checkpoint/root_disk.h"
#include "checkpoint/save.h"

#define CHECKPOINT_STATE     "weft.json"
#define CHECKPOINT_OPTIMIZER "optimizer.safetensors"

/* The member "checksums" for a list that was written; the caller releases it. */
MUST_USE Status checksums_json(SaveList *list, json_t **ret_json);
/* Adds the member "seal", which covers all others. */
MUST_USE Status checksums_seal(json_t *state);

/* What checksums_verify found. */
typedef struct Verified {
    int64_t tensors, bytes; /* on all ranks; 0: the directory has no checksums */
} Verified;

typedef enum { VERIFY_ALL, VERIFY_WEIGHTS } VerifyScope;

/* Compares a directory's tensors with its checksums; an error names the first that differs. It is DAMAGED
 * unless the files could not be read. VERIFY_WEIGHTS leaves out the optimizer's state, which need not exist.
 * The ranks of the mesh divide the tensors among them; NULL: one rank. Directories without checksums (other
 * programs', older ones) pass. ret_verified may be NULL. Collective. */
MUST_USE Status checksums_verify(const char *dir, VerifyScope scope, Mesh *mesh, Verified *ret_verified);
/* The same; with `disk`, rank 0 does it alone. */
MUST_USE Status checksums_verify_at(const char *dir, const RootDisk *disk, VerifyScope scope, Mesh *mesh);

#endif
