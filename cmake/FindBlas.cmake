# The matrix library behind the cpu kernels: BLIS or OpenBLAS, in their OpenMP builds. WEFT_BLAS chooses;
# `auto` takes the faster one that is installed: BLIS on aarch64, OpenBLAS elsewhere.
set(WEFT_BLAS auto CACHE STRING "auto, blis or openblas")
set_property(CACHE WEFT_BLAS PROPERTY STRINGS auto blis openblas)

function(weft_find_blas name)
  find_library(WEFT_${name}_LIBRARY NAMES ${name} PATH_SUFFIXES ${name}-openmp
    PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib NO_DEFAULT_PATH)
  find_library(WEFT_${name}_LIBRARY NAMES ${name})
  find_path(WEFT_${name}_INCLUDE NAMES cblas.h PATH_SUFFIXES ${name}-openmp
    PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/${name}-openmp NO_DEFAULT_PATH)
  find_path(WEFT_${name}_INCLUDE NAMES cblas.h PATH_SUFFIXES ${name} openblas)
endfunction()
weft_find_blas(blis)
weft_find_blas(openblas)

set(order openblas blis)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(order blis openblas)
endif()
if(NOT WEFT_BLAS STREQUAL "auto")
  set(order ${WEFT_BLAS})
endif()
foreach(name IN LISTS order)
  if(WEFT_${name}_LIBRARY AND WEFT_${name}_INCLUDE)
    set(WEFT_BLAS_FOUND ${name})
    break()
  endif()
endforeach()
if(NOT WEFT_BLAS_FOUND)
  message(FATAL_ERROR "weft needs BLIS or OpenBLAS with its headers: install libblis-openmp-dev or "
    "libopenblas-openmp-dev")
endif()
message(STATUS "Matrix library: ${WEFT_BLAS_FOUND} (${WEFT_${WEFT_BLAS_FOUND}_LIBRARY})")
add_library(weft_blas INTERFACE)
target_link_libraries(weft_blas INTERFACE ${WEFT_${WEFT_BLAS_FOUND}_LIBRARY})
target_include_directories(weft_blas SYSTEM INTERFACE ${WEFT_${WEFT_BLAS_FOUND}_INCLUDE})
string(TOUPPER ${WEFT_BLAS_FOUND} blas_upper)
target_compile_definitions(weft_blas INTERFACE WEFT_BLAS_${blas_upper}=1)
