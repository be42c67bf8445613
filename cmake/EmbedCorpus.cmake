# Packs the project's own text into the library, so that training has something to read without any
# file: every source, test and document, sorted by path, each followed by the ASCII file separator.
# Run as a script (cmake -P) with OUT, SEPARATOR and LIST it does the packing at build time.
if(CMAKE_SCRIPT_MODE_FILE)
  file(STRINGS ${LIST} files)
  set(pieces "")
  foreach(file IN LISTS files)
    list(APPEND pieces ${file} ${SEPARATOR})
  endforeach()
  execute_process(COMMAND ${CMAKE_COMMAND} -E cat ${pieces} OUTPUT_FILE ${OUT} COMMAND_ERROR_IS_FATAL ANY)
  return()
endif()

file(GLOB_RECURSE corpus_files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
  src/*.c src/*.h tests/*.c tests/*.h cmake/*.cmake docs/*.md)
file(GLOB corpus_top CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} *.md CMakeLists.txt)
list(APPEND corpus_files ${corpus_top})
list(FILTER corpus_files EXCLUDE REGEX "_table\\.c$") # numbers that scripts have made
list(SORT corpus_files)

set(corpus_dir ${CMAKE_BINARY_DIR}/corpus)
string(ASCII 28 separator)
string(REPLACE ";" "\n" corpus_lines "${corpus_files}")
file(GENERATE OUTPUT ${corpus_dir}/separator CONTENT "${separator}")
file(CONFIGURE OUTPUT ${corpus_dir}/list.txt CONTENT "${corpus_lines}\n" @ONLY)
# The assembler behind both compilers reads the bytes in, which no compiler has to parse.
file(CONFIGURE OUTPUT ${corpus_dir}/corpus_data.c @ONLY CONTENT [=[
__asm__(".section .rodata\n"
        ".global weft_corpus_begin, weft_corpus_end\n"
        "weft_corpus_begin:\n"
        ".incbin \"@corpus_dir@/corpus.bin\"\n"
        "weft_corpus_end:\n"
        ".byte 0\n"
        ".previous\n");
]=])
add_custom_command(OUTPUT ${corpus_dir}/corpus.bin
  COMMAND ${CMAKE_COMMAND} -DOUT=${corpus_dir}/corpus.bin -DSEPARATOR=${corpus_dir}/separator
    -DLIST=${corpus_dir}/list.txt -P ${CMAKE_CURRENT_LIST_FILE}
  DEPENDS ${corpus_files} ${corpus_dir}/list.txt ${corpus_dir}/separator ${CMAKE_CURRENT_LIST_FILE}
  WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} COMMENT "Packing the embedded corpus" VERBATIM)
set_source_files_properties(${corpus_dir}/corpus_data.c PROPERTIES OBJECT_DEPENDS ${corpus_dir}/corpus.bin)
target_sources(weft_core PRIVATE ${corpus_dir}/corpus_data.c)
