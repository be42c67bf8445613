/* The device that tests compute on: the CPU, or, with WEFT_TEST_DEVICE=cuda, the first GPU.
 *
 * There, what tests take for device memory is page-locked memory of the host, which kernels reach too. So a
 * test may read and write tensors itself, once it has waited for the stream. One GPU serves a whole program:
 * its libraries are slow to open. */
#ifndef WEFT_TESTS_DEVICE_H
#define WEFT_TESTS_DEVICE_H

#include "test.h"

#include "device/device.h"

static inline bool test_on_cuda(void) {
    const char *name = getenv("WEFT_TEST_DEVICE");
    return name && strcmp(name, "cuda") == 0;
}

/* The kernels for it. */
static inline const char *test_kernels(void) {
    return test_on_cuda() ? "cuda" : "cpu";
}

static inline Device *test_device_cuda(void) {
    static DeviceOps ops;
    static Device *device;
    if (device) return device;
    setenv("WEFT_CUDA_TUNE", "0", 1); /* what is fastest on such memory is not worth keeping */
    assert_ok(device_new_cuda(&device, 0));
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
