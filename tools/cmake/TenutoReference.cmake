# The reference of the public headers and the documents, in build/P/reference/html. It is made and
# installed only when asked:
#   cmake --build build/P --target reference
#   cmake --install build/P --component reference

include_guard(GLOBAL)

function(tenuto_reference)
  set(out "${CMAKE_BINARY_DIR}/reference")
  find_program(TENUTO_DOXYGEN doxygen)
  if(TENUTO_DOXYGEN)
    add_custom_target(
      reference
      COMMAND "${CMAKE_COMMAND}" -E rm -rf "${out}"
      COMMAND "${CMAKE_COMMAND}" -E make_directory "${out}"
      COMMAND "${CMAKE_COMMAND}" -E env "TENUTO_REFERENCE=${out}" "TENUTO_VERSION=${PROJECT_VERSION}"
              "${TENUTO_DOXYGEN}" tools/reference/Doxyfile
      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
      COMMENT "${out}/html/index.html"
      VERBATIM)
  else()
    add_custom_target(reference COMMAND "${CMAKE_COMMAND}" -E echo "the reference needs doxygen"
                      COMMAND "${CMAKE_COMMAND}" -E false)
  endif()
  if(TENUTO_INSTALL)
    install(CODE "if(NOT EXISTS \"${out}/html/index.html\")
      message(FATAL_ERROR \"the reference is not there; build the target reference first\")
    endif()" COMPONENT reference EXCLUDE_FROM_ALL)
    install(DIRECTORY "${out}/html" DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT reference
            EXCLUDE_FROM_ALL)
  endif()
endfunction()
