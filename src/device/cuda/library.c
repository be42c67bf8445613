/* Libraries that are opened when they are needed. */
#include <dlfcn.h>
#include <string.h>

#include "device/cuda/cuda.h"

/* The handle stays open as long as the program: CUDA's libraries do not like to be unloaded. */
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
    return FAILED("%s needs %s, which is not there: %s", what, names[0], reason);
}

Status library_bind(void *library, const char *const *names, size_t count, void *ret_functions) {
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, names[i]);
        if (!address) return FAILED("the CUDA library that should have %s lacks it: it is too old", names[i]);
        memcpy((char *)ret_functions + i * sizeof address, &address, sizeof address);
    }
    return OK;
}
