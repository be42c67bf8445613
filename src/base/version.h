/* Which weft this is. */
#ifndef WEFT_BASE_VERSION_H
#define WEFT_BASE_VERSION_H

/* "0.1.0 (7a85a0f)": the version and, in a build from a git checkout, the commit; "-dirty" after it if files
 * had been changed. */
const char *weft_build(void);

#endif
