/* Lookup and token loss with a vocabulary matrix that is gathered piece by piece (VocabPieces), so that
 * neither the matrix nor its gradient ever exists as a whole.
 *
 * The loss needs the matrix twice: for the logits and, once their sum of exponentials is known, for the
 * gradient of its input. The second pass runs backward through the pieces, so the last one is gathered once.
 * Logits are kept in between if those of the micro-batch fit in one chunk (loss_keeps_logits), else
 * recomputed.
 */
#ifndef WEFT_MODEL_PARTS_VOCAB_H
#define WEFT_MODEL_PARTS_VOCAB_H

#include "model/model.h"

/* The rows of the vocabulary in a piece. *ret_rows of them belong to the matrix; the rest is padding and must
 * not be used, because the same rows of the vocabulary belong to the next tensor-parallel rank. */
VocabPart vocab_piece(const Block *block, const Pass *pass, int piece, int64_t *ret_rows);

typedef struct VocabLookup {
    Tensor found, piece; /* (B,T,C) */
} VocabLookup;

/* Scratch; empty unless the matrix is in pieces. */
VocabLookup vocab_lookup_scratch(const Block *block, Shape shape, Bump *bump);
/* *ret_rows (B*T,C): the row of each token, 0 for those of other tensor-parallel ranks. */
MUST_USE Status vocab_lookup(const Block *block, Pass *pass, const VocabLookup *w, Tensor *ret_rows);

typedef struct VocabLoss {
    Tensor logits;   /* (M,piece_rows) of each piece or, if they are recomputed, of one */
    bool all_pieces; /* logits has all pieces */
    Tensor parts;    /* (pieces,M,3) */
    Tensor sum;      /* (M,C) fp32, for 16-bit types in training */
} VocabLoss;

typedef struct VocabLossArgs {
    Tensor dh, h;         /* (M,C) dh only in training */
    Tensor labels;        /* (M) */
    Tensor bias, dbias;   /* (V) local part; optional */
    Tensor stats, losses; /* (M,3) (M) workspace */
    Tensor tp_parts;      /* (tp,M,3) workspace for several tensor-parallel ranks */
} VocabLossArgs;

/* Scratch for up to `rows` rows; empty unless the matrix is in pieces. */
VocabLoss vocab_loss_scratch(const Block *block, Shape shape, int64_t rows, Bump *bump);
/* Adds the loss of M rows and, in training, adds to the gradients of the matrix and the bias and computes
 * dh, over the local part of the vocabulary. All replicas call it equally often; M may be 0. */
MUST_USE Status vocab_loss(const Block *block, Pass *pass, const VocabLoss *w, const VocabLossArgs *a);

#endif
