/* Loading shared libraries on demand. */
#include <dlfcn.h>
#include <string.h>

#include "device/cuda/cuda.h"

/* The handle is never closed: CUDA libraries do not support unloading reliably. */
Status library_open(void **ret_library, const char *const *names, const char *what) {
    const char *reason = "";
    for (size_t i = 0; names[i]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library) {
            *ret_library = library;
            return OK;
        }
        const char *error = dlerror();
        if (error) reason = error;
    }
    return FAILED("%s needs %s, which cannot be loaded: %s", what, names[0], reason);
}

Status library_bind(void *library, const char *const *names, size_t count, void *ret_functions) {
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, names[i]);
        if (!address) return FAILED("a CUDA library is too old: it has no function %s", names[i]);
        memcpy((char *)ret_functions + i * sizeof address, &address, sizeof address);
    }
    return OK;
}
