/* What the files of the gradient tests share; see test_gradients.c. */
#ifndef WEFT_TESTS_KERNELS_GRADIENTS_H
#define WEFT_TESTS_KERNELS_GRADIENTS_H

#include "kit.h"

typedef void (*Forward)(Kit *kit, void *context);

typedef struct Problem {
    Kit *kit;
    Forward forward;
    void *context;
    Tensor y, weight; /* forward output, and its weights c in the objective */
} Problem;

double objective(const Problem *problem);
/* Checks that dx is the gradient of the objective with respect to x. */
void check_gradient(const Problem *problem, const char *what, Tensor x, Tensor dx);

/* Parameter gradients are accumulated. Starting from 1, they must be 1 too large, which less_one() corrects.
 */
Tensor ones(Kit *kit, Tensor shape);
Tensor less_one(Tensor tensor);
/* Moves values away from 0, where ReLU is not differentiable. */
void avoid_zero(Tensor x);

/* gradients_expert.c */
void test_route(void **state);
void test_expert_rows(void **state);
void test_expert_act(void **state);
void test_grouped(void **state);

#endif
