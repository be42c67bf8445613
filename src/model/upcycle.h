/* Sparse upcycling: a dense decoder becomes a mixture of experts that computes the same function. Every
 * expert of every layer is a copy of the MLP, and the weights of a token's experts sum to 1, so it does not
 * matter which of them the router, which is new, chooses. A shared expert, if the family has one, adds
 * nothing at first: its down matrix is zero. Training then makes the experts differ. */
#ifndef WEFT_MODEL_UPCYCLE_H
#define WEFT_MODEL_UPCYCLE_H

#include "model/model.h"

/* Makes the configuration of a dense decoder that of a mixture. The experts have the size of the MLP, as does
 * a shared one. top_k 0: 2 experts per token. A usage error if the family has no mixtures, or if their
 * configuration cannot say something about this model. */
MUST_USE Status config_upcycle(ModelConfig *config, int64_t experts, int64_t top_k);
/* The parameters of `mixture`, a model of such a configuration, from those of the dense model. Both stores
 * are complete and in host memory. Routers are drawn with `seed`. */
MUST_USE Status store_upcycle(Store *mixture, const Store *dense, uint64_t seed);

#endif
