# Embeds the project's own text in the library as the corpus `--data self`, so that training works without any data
# files: all sources, tests and documents, sorted by path, each followed by the ASCII file separator.
# At build time this file runs as a script (cmake -P, with OUT, SEPARATOR and LIST) to concatenate them.
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
  src/*.c src/*.h src/*.def tests/*.c tests/*.h cmake/*.cmake docs/*.md)
file(GLOB corpus_top CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} *.md CMakeLists.txt)
list(APPEND corpus_files ${corpus_top})
list(FILTER corpus_files EXCLUDE REGEX "_table\\.c$") # generated tables
list(SORT corpus_files)

set(corpus_dir ${CMAKE_BINARY_DIR}/corpus)
string(ASCII 28 separator)
string(REPLACE ";" "\n" corpus_lines "${corpus_files}")
file(GENERATE OUTPUT ${corpus_dir}/separator CONTENT "${separator}")
file(CONFIGURE OUTPUT ${corpus_dir}/list.txt CONTENT "${corpus_lines}\n" @ONLY)
# .incbin lets the assembler include the bytes, so the compiler does not have to parse them.
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
