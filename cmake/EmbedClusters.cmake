# Embeds the descriptions of clusters and programs (clusters/*.json, clusters/software/*.json) in the library, so that `weft plan --cluster h200` does not depend on
# files, and installs them as templates for new descriptions. Each file lies between two consecutive weft_cluster_N
# symbols.
file(GLOB cluster_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/clusters/*.json)
file(GLOB program_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/clusters/software/*.json)
list(SORT cluster_files)
list(SORT program_files)
set(cluster_dir ${CMAKE_BINARY_DIR}/clusters)
set(cluster_bytes "")
set(cluster_rows "")
set(program_rows "")
set(cluster_names "")
set(cluster_index 0)
foreach(file IN LISTS cluster_files program_files)
  get_filename_component(name ${file} NAME_WE)
  string(APPEND cluster_bytes
    "        \"weft_cluster_${cluster_index}:\\n\"\n"
    "        \".incbin \\\"${file}\\\"\\n\"\n")
  string(APPEND cluster_names "extern const char weft_cluster_${cluster_index}[];\n")
  math(EXPR next "${cluster_index} + 1")
  set(rows cluster_rows)
  if(file IN_LIST program_files)
    set(rows program_rows)
  endif()
  string(APPEND ${rows}
    "    {\"${name}\", weft_cluster_${cluster_index}, weft_cluster_${next}},\n")
  set(cluster_index ${next})
endforeach()
string(APPEND cluster_names "extern const char weft_cluster_${cluster_index}[];\n")
set(cluster_globals "")
foreach(index RANGE ${cluster_index})
  string(APPEND cluster_globals "        \".global weft_cluster_${index}\\n\"\n")
endforeach()
file(CONFIGURE OUTPUT ${cluster_dir}/clusters_data.c @ONLY CONTENT [=[
#include "plan/cluster.h"

__asm__(".section .rodata\n"
@cluster_globals@@cluster_bytes@        "weft_cluster_@cluster_index@:\n"
        ".byte 0\n"
        ".previous\n");

@cluster_names@
const ClusterText weft_clusters[] = {
@cluster_rows@    {0},
};
const ClusterText weft_programs[] = {
@program_rows@    {0},
};
]=])
set_source_files_properties(${cluster_dir}/clusters_data.c PROPERTIES OBJECT_DEPENDS "${cluster_files};${program_files}")
target_sources(weft_core PRIVATE ${cluster_dir}/clusters_data.c)
install(FILES ${cluster_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/clusters)
install(FILES ${program_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/weft/clusters/software)
