/* The only file that is compiled again after a commit: the build defines WEFT_COMMIT for it alone. */
#include "base/version.h"

const char *weft_build(void) {
#ifdef WEFT_COMMIT
    return WEFT_VERSION " (" WEFT_COMMIT ")";
#else
    return WEFT_VERSION;
#endif
}
