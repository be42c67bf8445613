/* What the files of test_dispatch.c share. */
#ifndef WEFT_TESTS_KERNELS_DISPATCH_H
#define WEFT_TESTS_KERNELS_DISPATCH_H

#include "kit.h"

#define REJECTS(call, text) assert_fails(call, STATUS_FAILED, "internal: " text)

static const char *const backends[] = {"ref", "cpu"};

/* dispatch_expert.c */
void test_wrong_experts(void **state);
void test_experts_out_of_range(void **state);
void test_grouped_dryrun(void **state);

#endif
