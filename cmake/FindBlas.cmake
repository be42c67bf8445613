# Selects the GEMMs of the cpu kernels: weft's own, which were faster in most measurements, or those of
# BLIS or OpenBLAS, preferably their OpenMP builds.
set(WEFT_BLAS none CACHE STRING "BLAS library: none (weft's own GEMMs), blis or openblas")
set_property(CACHE WEFT_BLAS PROPERTY STRINGS none blis openblas)

add_library(weft_blas INTERFACE)
if(WEFT_BLAS MATCHES "^(blis|openblas)$")
  find_library(WEFT_${WEFT_BLAS}_LIBRARY NAMES ${WEFT_BLAS} PATH_SUFFIXES ${WEFT_BLAS}-openmp
    PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib NO_DEFAULT_PATH)
  find_library(WEFT_${WEFT_BLAS}_LIBRARY NAMES ${WEFT_BLAS})
  find_path(WEFT_${WEFT_BLAS}_INCLUDE NAMES cblas.h PATH_SUFFIXES ${WEFT_BLAS}-openmp
    PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/${WEFT_BLAS}-openmp NO_DEFAULT_PATH)
  find_path(WEFT_${WEFT_BLAS}_INCLUDE NAMES cblas.h PATH_SUFFIXES ${WEFT_BLAS} openblas)
  if(NOT (WEFT_${WEFT_BLAS}_LIBRARY AND WEFT_${WEFT_BLAS}_INCLUDE))
    message(FATAL_ERROR "WEFT_BLAS=${WEFT_BLAS}, but ${WEFT_BLAS} or its headers were not found; on Debian: apt-get install lib${WEFT_BLAS}-openmp-dev")
  endif()
  message(STATUS "BLAS: ${WEFT_BLAS} (${WEFT_${WEFT_BLAS}_LIBRARY})")
  target_link_libraries(weft_blas INTERFACE ${WEFT_${WEFT_BLAS}_LIBRARY})
  target_include_directories(weft_blas SYSTEM INTERFACE ${WEFT_${WEFT_BLAS}_INCLUDE})
  string(TOUPPER ${WEFT_BLAS} blas_upper)
  target_compile_definitions(weft_blas INTERFACE WEFT_BLAS_${blas_upper}=1)
elseif(WEFT_BLAS MATCHES "^(none|auto)$") # auto: the default of older versions, kept in build directories
  message(STATUS "BLAS: none, using weft's own GEMMs")
else()
  message(FATAL_ERROR "WEFT_BLAS=${WEFT_BLAS} is unknown; use none, blis or openblas")
endif()
