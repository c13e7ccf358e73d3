# What `cmake --install` puts where, and how others find it: the CMake package `tenuto`
# (find_package(tenuto) gives tenuto::tenuto, tenuto::tenuto_shared and, where it was built,
# tenuto::tenuto_traced) and tenuto.pc (tenuto_traced.pc). tests/package tries both ways from an empty prefix.
#
# Components: library, traced (the traced build for tenuto/crash.h), tools, pmemobj (the drop-in).

include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

option(TENUTO_INSTALL "Rules for cmake --install" ${PROJECT_IS_TOP_LEVEL})

# What users of an installed library need; in the build tree it comes from the layers.
function(tenuto_install_interface target)
  target_include_directories(${target} INTERFACE
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  foreach(library IN ITEMS Threads::Threads TBB::tbb PkgConfig::tenuto_lz4)
    target_link_libraries(${target} INTERFACE $<INSTALL_INTERFACE:$<LINK_ONLY:${library}>>)
  endforeach()
  if(target MATCHES "_traced$")
    target_compile_definitions(${target} INTERFACE $<INSTALL_INTERFACE:TENUTO_TRACED>)
    foreach(option IN LISTS TENUTO_TRACE_OPTIONS)
      target_compile_options(${target} INTERFACE $<INSTALL_INTERFACE:${option}>)
    endforeach()
  endif()
endfunction()

# The shared library, for other languages and for those who replace it without linking anew.
function(tenuto_shared_library)
  add_library(tenuto_shared SHARED)
  foreach(layer IN LISTS TENUTO_LAYERS)
    target_sources(tenuto_shared PRIVATE $<TARGET_OBJECTS:tenuto_${layer}>)
  endforeach()
  set_target_properties(
    tenuto_shared
    PROPERTIES OUTPUT_NAME tenuto
               VERSION ${PROJECT_VERSION}
               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
               LINKER_LANGUAGE CXX)
  target_link_libraries(tenuto_shared PRIVATE Threads::Threads TBB::tbb PkgConfig::lz4)
  set(map "${PROJECT_SOURCE_DIR}/tools/cmake/tenuto.map")
  target_link_options(tenuto_shared PRIVATE LINKER:--no-undefined LINKER:-z,nodelete  # threads end in it
                      "LINKER:--version-script=${map}")
  set_target_properties(tenuto_shared PROPERTIES LINK_DEPENDS "${map}")
  target_include_directories(
    tenuto_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(tenuto_shared INTERFACE cxx_std_20)
  add_library(tenuto::tenuto_shared ALIAS tenuto_shared)
  add_dependencies(libraries tenuto_shared)
endfunction()

function(tenuto_install)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tenuto)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/tenuto" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          COMPONENT library)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DOCDIR}
          COMPONENT library)
  foreach(target IN ITEMS tenuto tenuto_shared tenuto_traced)
    if(NOT TARGET ${target})
      continue()
    endif()
    set(component library)
    if(target STREQUAL "tenuto_traced")
      set(component traced)
    endif()
    install(TARGETS ${target} EXPORT ${target}_targets
            ARCHIVE COMPONENT ${component}
            LIBRARY COMPONENT ${component})
    install(EXPORT ${target}_targets NAMESPACE tenuto:: FILE ${target}-targets.cmake
            DESTINATION ${package_dir} COMPONENT ${component})
  endforeach()
  if(TARGET tenuto_cli)
    install(TARGETS tenuto_cli RUNTIME COMPONENT tools)
    get_target_property(help tenuto_cli TENUTO_HELP)
    install(DIRECTORY "${help}/man1" DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT tools)
    set(data ${CMAKE_INSTALL_DATADIR})
    install(FILES "${help}/bash/tenuto" DESTINATION ${data}/bash-completion/completions
            COMPONENT tools)
    install(FILES "${help}/zsh/_tenuto" DESTINATION ${data}/zsh/site-functions COMPONENT tools)
    install(FILES "${help}/fish/tenuto.fish" DESTINATION ${data}/fish/vendor_completions.d
            COMPONENT tools)
  endif()

  set(built "${CMAKE_CURRENT_BINARY_DIR}/package")
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/tools/cmake/tenuto-config.cmake.in" "${built}/tenuto-config.cmake"
    INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
  # Before 1.0 a minor version may change what there was.
  write_basic_package_version_file("${built}/tenuto-config-version.cmake"
                                   COMPATIBILITY SameMinorVersion)
  install(FILES "${built}/tenuto-config.cmake" "${built}/tenuto-config-version.cmake"
          DESTINATION ${package_dir} COMPONENT library)

  # Relative, so that what was installed may be moved as a whole.
  file(RELATIVE_PATH pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
  configure_file("${PROJECT_SOURCE_DIR}/tools/cmake/tenuto.pc.in" "${built}/tenuto.pc" @ONLY)
  install(FILES "${built}/tenuto.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT library)
  if(TARGET tenuto_traced)
    list(JOIN TENUTO_TRACE_OPTIONS " " trace_flags)
    string(REPLACE "SHELL:" "" trace_flags "${trace_flags}")
    configure_file("${PROJECT_SOURCE_DIR}/tools/cmake/tenuto_traced.pc.in"
                   "${built}/tenuto_traced.pc" @ONLY)
    install(FILES "${built}/tenuto_traced.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
            COMPONENT traced)
  endif()
endfunction()
