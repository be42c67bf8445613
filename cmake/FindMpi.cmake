# Enables MPI if it is found; WEFT_MPI=OFF disables it. Without MPI, weft runs a single rank.
option(WEFT_MPI "Use MPI if it is found" ON)
set(WEFT_MPI_LIBRARIES "")
set(WEFT_MPI_EXCLUDED "src/comm/mpi/")
if(WEFT_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI 3.0 QUIET COMPONENTS C)
endif()
if(WEFT_MPI AND MPI_C_FOUND)
  message(STATUS "MPI: ${MPI_C_VERSION} (${MPI_C_LIBRARIES})")
  find_package(Threads REQUIRED)
  set(WEFT_MPI_LIBRARIES MPI::MPI_C Threads::Threads)
  set(WEFT_MPI_EXCLUDED "src/comm/nompi\\.c$")
  set_source_files_properties(src/cli/launch.c PROPERTIES
    COMPILE_DEFINITIONS WEFT_MPIEXEC="${MPIEXEC_EXECUTABLE}")
  # MPICH defines MPI_STATUSES_IGNORE as address 1, which gcc mistakes for an array of size 0.
  set_source_files_properties(src/comm/mpi/flow.c PROPERTIES
    COMPILE_OPTIONS $<$<C_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
else()
  message(STATUS "MPI: not used")
endif()
