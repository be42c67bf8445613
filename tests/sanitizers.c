/* Linked into every program of a build with the sanitizers, so that the leak check reports only weft's leaks,
 * also where a test runs as several ranks or starts weft with several. */
#include <dlfcn.h>
#include <stdlib.h>

const char *__lsan_default_suppressions(void);
const char *__lsan_default_options(void);

/* Open MPI and its libraries keep memory until the process exits. Their calls of vasprintf cannot be told
 * from weft's, because libc has no frame pointers, so ranks ignore all of them. One test abandons a run on
 * purpose. */
const char *__lsan_default_suppressions(void) {
    if (!getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMIX_RANK")) return "";
    return "leak:libmpi\nleak:libopen-rte\nleak:libopen-pal\nleak:libpmix\nleak:libhwloc\nleak:"
           "libevent\nleak:mca_\n"
           "leak:vasprintf\nleak:test_abandoned\n";
}

const char *__lsan_default_options(void) {
    return "print_suppressions=0";
}

/* Open MPI unloads its components before the check, which could then not tell whose code allocated. Keep them
 * loaded. */
int dlclose(void *handle) {
    (void)handle;
    return 0;
}
