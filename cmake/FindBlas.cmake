# Selects the BLAS library of the cpu kernels: BLIS or OpenBLAS, preferably their OpenMP builds, or none, which uses
# weft's own GEMMs. WEFT_BLAS=auto picks the fastest: weft's own GEMMs on aarch64, elsewhere OpenBLAS, BLIS or weft's
# own, in this order.
set(WEFT_BLAS auto CACHE STRING "BLAS library: auto, blis, openblas or none (weft's own GEMMs)")
set_property(CACHE WEFT_BLAS PROPERTY STRINGS auto blis openblas none)

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
if(WEFT_BLAS STREQUAL "none" OR (WEFT_BLAS STREQUAL "auto" AND CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64"))
  set(order "")
elseif(NOT WEFT_BLAS STREQUAL "auto")
  set(order ${WEFT_BLAS})
endif()
set(WEFT_BLAS_FOUND "")
foreach(name IN LISTS order)
  if(WEFT_${name}_LIBRARY AND WEFT_${name}_INCLUDE)
    set(WEFT_BLAS_FOUND ${name})
    break()
  endif()
endforeach()

add_library(weft_blas INTERFACE)
if(WEFT_BLAS_FOUND)
  message(STATUS "BLAS: ${WEFT_BLAS_FOUND} (${WEFT_${WEFT_BLAS_FOUND}_LIBRARY})")
  target_link_libraries(weft_blas INTERFACE ${WEFT_${WEFT_BLAS_FOUND}_LIBRARY})
  target_include_directories(weft_blas SYSTEM INTERFACE ${WEFT_${WEFT_BLAS_FOUND}_INCLUDE})
  string(TOUPPER ${WEFT_BLAS_FOUND} blas_upper)
  target_compile_definitions(weft_blas INTERFACE WEFT_BLAS_${blas_upper}=1)
elseif(WEFT_BLAS MATCHES "^(blis|openblas)$")
  message(FATAL_ERROR "WEFT_BLAS=${WEFT_BLAS}, but ${WEFT_BLAS} or its headers were not found; on Debian: apt-get install lib${WEFT_BLAS}-openmp-dev")
else()
  message(STATUS "BLAS: none, using weft's own GEMMs")
endif()
