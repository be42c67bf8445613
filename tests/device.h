/* The device that tests run on: the CPU, or the first GPU with WEFT_TEST_DEVICE=cuda.
 *
 * On the GPU, device allocations are replaced by page-locked host memory, which kernels can access as well.
 * Tests can therefore read and write tensors directly, after synchronizing the stream. All tests of a program
 * share one GPU device, because loading its libraries is slow; test_device_free() leaves it open. */
#ifndef WEFT_TESTS_DEVICE_H
#define WEFT_TESTS_DEVICE_H

#include "test.h"

#include "device/device.h"

static inline bool test_on_cuda(void) {
    const char *name = getenv("WEFT_TEST_DEVICE");
    return name && strcmp(name, "cuda") == 0;
}

/* Name of the kernel backend for the test device. */
static inline const char *test_kernels(void) {
    return test_on_cuda() ? "cuda" : "cpu";
}

/* The GPU that tests use. */
static inline int *test_gpu(void) {
    static int index;
    return &index;
}

static inline Device *test_device_cuda(void) {
    static DeviceOps ops;
    static Device *device;
    if (device) return device;
    setenv("WEFT_CUDA_TUNE", "0", 1); /* tuning results on host memory are not worth caching */
    assert_ok(device_new_cuda(&device, *test_gpu()));
    ops = *device->ops;
    ops.alloc = ops.alloc_host;
    ops.free = ops.free_host;
    device->ops = &ops;
    return device;
}

static inline void test_device_new(Device **ret_device, int threads) {
    if (test_on_cuda())
        *ret_device = test_device_cuda();
    else
        assert_ok(device_new_cpu(ret_device, threads));
}

static inline void test_device_free(Device *device) {
    if (!test_on_cuda()) device_free(device);
}
DEFINE_FREEP(Device, test_device)

#endif
