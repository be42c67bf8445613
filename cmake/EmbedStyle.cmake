# Embeds the report page's style sheet (src/report/page.css) in the library as a NUL-terminated string.
set(style_file ${CMAKE_SOURCE_DIR}/src/report/page.css)
set(style_source ${CMAKE_BINARY_DIR}/report/page_style_data.c)
file(CONFIGURE OUTPUT ${style_source} @ONLY CONTENT [=[
#include "report/page.h"

__asm__(".section .rodata\n"
        ".global weft_page_style\n"
        "weft_page_style:\n"
        ".incbin \"@style_file@\"\n"
        ".byte 0\n"
        ".previous\n");
]=])
set_source_files_properties(${style_source} PROPERTIES OBJECT_DEPENDS ${style_file})
target_sources(weft_core PRIVATE ${style_source})
