# Defines WEFT_COMMIT for src/base/version.c if this is a git checkout; tarballs have none. A commit or checkout
# configures again.
find_package(Git QUIET)
if(Git_FOUND AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=10
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE WEFT_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT_EXECUTABLE} rev-parse --path-format=absolute --git-path logs/HEAD
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE WEFT_COMMIT_LOG OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(WEFT_COMMIT MATCHES "^[A-Za-z0-9._-]+$")
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/base/version.c PROPERTIES COMPILE_DEFINITIONS
      WEFT_COMMIT="${WEFT_COMMIT}")
  endif()
  if(EXISTS "${WEFT_COMMIT_LOG}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${WEFT_COMMIT_LOG})
  endif()
endif()
