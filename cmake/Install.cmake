# Installation rules. At the end of the build the program itself generates the man page and the shell completions from
# its option tables; cross builds, which cannot run it, omit them.

# The installed program uses the BLAS library it was built and tested with.
set_target_properties(weft PROPERTIES INSTALL_RPATH_USE_LINK_PATH TRUE)
install(TARGETS weft RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(NOT CMAKE_CROSSCOMPILING)
  set(WEFT_SHARE ${CMAKE_BINARY_DIR}/share)
  file(MAKE_DIRECTORY ${WEFT_SHARE})

  function(weft_generate file destination)
    add_custom_command(OUTPUT ${WEFT_SHARE}/${file} COMMAND weft help ${ARGN} > ${WEFT_SHARE}/${file}
      DEPENDS weft COMMENT "Writing ${file}" VERBATIM)
    set_property(GLOBAL APPEND PROPERTY WEFT_GENERATED ${WEFT_SHARE}/${file})
    install(FILES ${WEFT_SHARE}/${file} DESTINATION ${destination})
  endfunction()

  weft_generate(weft.1 ${CMAKE_INSTALL_MANDIR}/man1 --man)
  weft_generate(weft ${CMAKE_INSTALL_DATADIR}/bash-completion/completions --completion bash)
  weft_generate(_weft ${CMAKE_INSTALL_DATADIR}/zsh/site-functions --completion zsh)
  weft_generate(weft.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d --completion fish)

  get_property(generated GLOBAL PROPERTY WEFT_GENERATED)
  add_custom_target(weft_share ALL DEPENDS ${generated})
endif()
# The pages link to each other as in the source tree.
install(FILES README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg")
install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/weft FILES_MATCHING PATTERN "*.json" PATTERN "*.py")

# cpack writes weft_VERSION_ARCHITECTURE.deb. Its dependencies are those of the libraries that the program is linked with.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "the weft authors")
set(CPACK_PACKAGE_CONTACT "the weft authors <weft@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openssh-client, gnuplot-nox")
find_program(WEFT_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(WEFT_SHLIBDEPS)
if(WEFT_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
endif()
include(CPack)
