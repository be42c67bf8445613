# Embeds the report page's style sheet and script (src/report/page.css, page.js) in the library as NUL-terminated strings.
set(style_file ${CMAKE_SOURCE_DIR}/src/report/page.css)
set(script_file ${CMAKE_SOURCE_DIR}/src/report/page.js)
set(style_source ${CMAKE_BINARY_DIR}/report/page_style_data.c)
file(CONFIGURE OUTPUT ${style_source} @ONLY CONTENT [=[
#include "report/page.h"

__asm__(".section .rodata\n"
        ".global weft_page_style\n"
        "weft_page_style:\n"
        ".incbin \"@style_file@\"\n"
        ".byte 0\n"
        ".global weft_page_script\n"
        "weft_page_script:\n"
        ".incbin \"@script_file@\"\n"
        ".byte 0\n"
        ".previous\n");
]=])
set_source_files_properties(${style_source} PROPERTIES OBJECT_DEPENDS "${style_file};${script_file}")
target_sources(weft_core PRIVATE ${style_source})
