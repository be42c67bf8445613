# Files under src/kernels/cpu/ that are compiled once per instruction set: for the architecture's baseline, and again for
# each newer instruction set, with WEFT_ISA as the suffix of their symbols. src/kernels/cpu/backend.c selects a variant at
# run time.
set(variant_sources act attention_backward attention_decode attention_forward dropout elementwise embedding expert gemm
  gemm_list gemm_skinny glu grouped layernorm linear linear_int8 linear_sparse micro momentum optim rmsnorm rope round route
  rows sketch table thin xent)
list(TRANSFORM variant_sources PREPEND ${CMAKE_SOURCE_DIR}/src/kernels/cpu/)
list(TRANSFORM variant_sources APPEND .c)

# What clang says about the kernels: `scripts/test` builds this target to be warned of loops that should vectorize and do
# not. The warnings come from the optimizer, so no machine code is generated. Variants other than this machine's are only
# checked for errors.
add_custom_target(kernel_variants)
function(weft_kernel_warnings isa)
  add_library(weft_warnings_${isa} OBJECT EXCLUDE_FROM_ALL ${variant_sources})
  target_link_libraries(weft_warnings_${isa} PRIVATE weft_flags OpenMP::OpenMP_C weft_blas)
  target_compile_options(weft_warnings_${isa} PRIVATE ${ARGN} -emit-llvm)
  if(NOT isa STREQUAL native_variant)
    target_compile_options(weft_warnings_${isa} PRIVATE -O0)
  endif()
  if(NOT isa STREQUAL "baseline")
    target_compile_definitions(weft_warnings_${isa} PRIVATE WEFT_ISA=${isa})
  endif()
  add_dependencies(kernel_variants weft_warnings_${isa})
endfunction()

# The instruction set that backend.c selects on this machine.
function(weft_native_variant ret)
  set(found baseline)
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo flags REGEX "^(flags|Features)[ \t]*:" LIMIT_COUNT 1)
    if(flags MATCHES " avx2( |$)" AND flags MATCHES " fma( |$)" AND flags MATCHES " f16c( |$)")
      set(found avx2)
      if(flags MATCHES " avx512f( |$)" AND flags MATCHES " avx512dq( |$)" AND flags MATCHES " avx512vl( |$)"
         AND flags MATCHES " avx512bw( |$)")
        set(found avx512)
      endif()
    elseif(flags MATCHES " bf16( |$)")
      set(found neon_bf16)
    endif()
  endif()
  set(${ret} ${found} PARENT_SCOPE)
endfunction()
weft_native_variant(native_variant)

# The suffix of a variant's symbols.
function(weft_variant_suffix isa ret)
  if(NOT isa STREQUAL "baseline")
    set(${ret} ${isa} PARENT_SCOPE)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(${ret} sse2 PARENT_SCOPE)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    set(${ret} neon PARENT_SCOPE)
  else()
    set(${ret} plain PARENT_SCOPE)
  endif()
endfunction()

option(WEFT_CHECK "Optimize only the CPU kernels that this machine runs" OFF)

# Options for variants that this build does not run, so that they compile quickly. As those of a library, they follow the
# options of weft_flags.
add_library(weft_unused_kernels INTERFACE)
target_compile_options(weft_unused_kernels INTERFACE -O0 -fno-sanitize=all)

# weft_kernel_variant(ISA OPTION...)
function(weft_kernel_variant isa)
  if(CMAKE_C_COMPILER_ID MATCHES "Clang" AND NOT WEFT_SANITIZE)
    weft_kernel_warnings(${isa} ${ARGN})
  endif()
  # Builds with the sanitizers have only the variant that this machine runs; backend.c uses it instead of the others.
  if(WEFT_SANITIZE AND NOT isa STREQUAL native_variant)
    weft_variant_suffix(${isa} absent)
    weft_variant_suffix(${native_variant} present)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/kernels/cpu/backend.c APPEND PROPERTY
      COMPILE_DEFINITIONS table_override_${absent}=table_override_${present})
    return()
  endif()
  add_library(weft_kernels_${isa} OBJECT ${variant_sources})
  target_link_libraries(weft_kernels_${isa} PRIVATE weft_flags OpenMP::OpenMP_C weft_blas)
  target_compile_options(weft_kernels_${isa} PRIVATE ${ARGN})
  set(variant_objects ${variant_objects} $<TARGET_OBJECTS:weft_kernels_${isa}> PARENT_SCOPE)
  if(NOT isa STREQUAL "baseline")
    target_compile_definitions(weft_kernels_${isa} PRIVATE WEFT_ISA=${isa})
  endif()
  # Tests with the sanitizers spend most of their time in the variant that they run; readers call none. Without the
  # sanitizers, a test also runs the baseline, for a moment.
  if(WEFT_FUZZ OR (WEFT_CHECK AND NOT isa STREQUAL native_variant))
    target_link_libraries(weft_kernels_${isa} PRIVATE weft_unused_kernels)
  elseif(WEFT_SANITIZE)
    target_compile_options(weft_kernels_${isa} PRIVATE -O2)
  endif()
endfunction()

# Contract multiply-add to FMA with every compiler, wherever the instruction set has it.
set_source_files_properties(${variant_sources} PROPERTIES COMPILE_OPTIONS -ffp-contract=fast)
# Quantization must produce the same integers on every platform (src/kernels/int4_round.h), and rotary frequencies
# are those of PyTorch, so no contraction here.
foreach(file kernels/cpu/round kernels/ref/round compress/int4 model/rope)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${file}.c PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
endforeach()
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  foreach(file micro thin)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/${file}.c PROPERTIES
      COMPILE_OPTIONS "-ffp-contract=fast;-fno-schedule-insns")
  endforeach()
  set(unscheduled -fno-schedule-insns)
endif()
weft_kernel_variant(baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  weft_kernel_variant(avx2 -mavx2 -mfma -mf16c)
  weft_kernel_variant(avx512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx2 -mfma -mf16c -mprfchw
    -mprefer-vector-width=512)
  # Each microkernel file needs its own instruction set extension, detected at run time by
  # src/kernels/cpu/choose.c.
  set(avx512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx512bf16 -mavx2 -mfma)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/micro_dot.c PROPERTIES
    COMPILE_OPTIONS "${avx512};${unscheduled}")
  foreach(file attention16_product micro_amx micro_split)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/${file}.c PROPERTIES
      COMPILE_OPTIONS "${avx512};-mamx-tile;-mamx-bf16")
  endforeach()
  foreach(file attention16_forward attention16_backward)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/${file}.c PROPERTIES
      COMPILE_OPTIONS "${avx512};-mprfchw;-ffp-contract=fast;-mprefer-vector-width=512")
  endforeach()
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/thin_amx.c PROPERTIES
    COMPILE_OPTIONS "-mamx-tile;-mamx-bf16")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/micro8_avx2.c PROPERTIES
    COMPILE_OPTIONS "-mavx2;${unscheduled}")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/micro8_vnni.c PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512vnni;${unscheduled}")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/micro8_amx.c PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mamx-tile;-mamx-int8")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  weft_kernel_variant(neon_bf16 -march=armv8.2-a+bf16)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/micro_mmla.c PROPERTIES
    COMPILE_OPTIONS "-march=armv8.2-a+bf16;${unscheduled}")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/micro8_mmla.c PROPERTIES
    COMPILE_OPTIONS "-march=armv8.2-a+i8mm;${unscheduled}")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/micro8_sdot.c PROPERTIES
    COMPILE_OPTIONS "-march=armv8.2-a+dotprod;${unscheduled}")
endif()
