/* How messages name settings. Below cli/, a format has the setting's name in braces, as in "{zero} 1", or its
 * name as an argument, "{%s}". status_new, status_wrap, progress_line and setting_print write it the way
 * users do; only setting.c knows how that is. */
#ifndef WEFT_BASE_SETTING_H
#define WEFT_BASE_SETTING_H

#include "base/status.h"

/* The format with its settings as users write them, or NULL if out of memory. The caller frees it. */
char *setting_spell(const char *fmt);
/* snprintf with such a format. */
int setting_print(char *text, size_t size, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
