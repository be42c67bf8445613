# MPI is used where it is found; without it weft runs one rank. WEFT_MPI=OFF leaves it out.
option(WEFT_MPI "Use MPI where it is found" ON)
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
  # MPICH's MPI_STATUSES_IGNORE is the address 1, which gcc takes for an array of nothing.
  set_source_files_properties(src/comm/mpi/flow.c PROPERTIES
    COMPILE_OPTIONS $<$<C_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
else()
  message(STATUS "MPI: none")
endif()
