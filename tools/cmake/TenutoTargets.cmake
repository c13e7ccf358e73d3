# The kinds of targets of this project. Each folder's CMakeLists.txt lists its files once; what has
# to be built from them (the plain library, the traced build) is decided here.
#
#   tenuto_layer(NAME SOURCES f.cc... [DEPENDS layer...] [LIBS lib...] [TRACE_RUNTIME f.cc...])
#   tenuto_program(NAME SOURCES f.cc... [TRACED] [LIBS lib...] [OUTPUT_NAME name])
#   tenuto_test(NAME [TRACED] [AFTER_CRASHES] [LAYER layer] [SOURCES f...] [LIBS lib...]
#               [DEFINES name...] [TIMEOUT seconds])
#   tenuto_test_program(NAME SOURCES f... [LIBS lib...])
#   tenuto_c_test(NAME)
#   tenuto_fuzz(NAME MUTATIONS n [SOURCES f...] [LIBS lib...])

include_guard(GLOBAL)
include(GoogleTest)

set(TENUTO_LAYERS pm crash journal file frame heap tx store)
set(TENUTO_TEST_KINDS test model crash stress fuzz)

# The traced build: compiled for the thread sanitizer, linked with the runtime in src/crash/trace*.cc
# instead of libtsan. Memory functions must stay calls, or the runtime does not see their stores.
set(TENUTO_TRACE_OPTIONS -fsanitize=thread -fno-builtin-memcpy -fno-builtin-memset
                         -fno-builtin-memmove)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # -Wno-tsan: warns that libtsan does not model fences, but the traced build does not use libtsan.
  list(APPEND TENUTO_TRACE_OPTIONS -Wno-tsan)
  # The standard library's headers name the builtins, which no option turns into calls.
  list(APPEND TENUTO_TRACE_OPTIONS -D__builtin_memcpy=memcpy -D__builtin_memmove=memmove
       -D__builtin_memset=memset "SHELL:-include string.h")
endif()

add_custom_target(libraries)  # every layer and the whole, both builds of them
add_custom_target(programs)  # everything in tools/ and bench/
add_custom_target(fuzz_targets)
foreach(kind IN LISTS TENUTO_TEST_KINDS)
  add_custom_target(tests_${kind})
endforeach()

# Files that include the same headers are compiled together.
function(tenuto_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TENUTO_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

function(tenuto_layer_library target traced)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;DEPENDS;LIBS;TRACE_RUNTIME")
  set(sources ${arg_SOURCES})
  if(traced)
    list(APPEND sources ${arg_TRACE_RUNTIME})
  endif()
  if(sources)
    set(scope PUBLIC)
    add_library(${target} STATIC ${sources})
    tenuto_unity(${target})
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden
                                               VISIBILITY_INLINES_HIDDEN ON)
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src"
                                                 "${PROJECT_SOURCE_DIR}")
    # Nobody replaces exported functions by others of the same name, so they may be inlined.
    target_compile_options(${target} PRIVATE -fno-semantic-interposition)
    if(TENUTO_NOEXCEPT)
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions
                                               -fno-rtti>)
    endif()
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
  endif()
  target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/include")
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} Threads::Threads ${arg_LIBS})
  foreach(below IN LISTS arg_DEPENDS)
    if(traced)
      target_link_libraries(${target} ${scope} tenuto_${below}_traced)
    else()
      target_link_libraries(${target} ${scope} tenuto_${below})
    endif()
  endforeach()
  if(traced)
    target_compile_definitions(${target} ${scope} TENUTO_TRACED)
    target_compile_options(${target} ${scope} ${TENUTO_TRACE_OPTIONS})
    # The runtime must not report its own stores; sources' options come after the target's.
    set_source_files_properties(${arg_TRACE_RUNTIME} PROPERTIES COMPILE_OPTIONS
                                                                -fno-sanitize=thread)
  endif()
endfunction()

# One layer: tenuto_NAME and, where it is built, tenuto_NAME_traced. LIBS are public. TRACE_RUNTIME
# lists the files of the traced runtime, which are in no other build.
function(tenuto_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;LIBS;TRACE_RUNTIME")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tenuto_layer(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
  endif()
  list(FIND TENUTO_LAYERS ${name} own)
  foreach(below IN LISTS arg_DEPENDS)
    list(FIND TENUTO_LAYERS ${below} other)
    if(other LESS 0 OR own LESS 0 OR NOT other LESS own)
      message(FATAL_ERROR "layer ${name} must not depend on ${below}: order is ${TENUTO_LAYERS}")
    endif()
  endforeach()
  tenuto_layer_library(tenuto_${name} FALSE ${ARGN})
  if(TENUTO_BUILD_TRACED)
    tenuto_layer_library(tenuto_${name}_traced TRUE ${ARGN})
  endif()
endfunction()

# The library that users link: the objects of all layers in one archive, and its traced build.
function(tenuto_umbrella)
  set(suffixes "")
  if(TENUTO_BUILD_TRACED)
    set(suffixes _traced)
  endif()
  foreach(suffix IN ITEMS "" ${suffixes})
    set(objects "")
    set(interface "")
    foreach(layer IN LISTS TENUTO_LAYERS)
      set(target tenuto_${layer}${suffix})
      get_target_property(type ${target} TYPE)
      if(type STREQUAL "STATIC_LIBRARY")
        list(APPEND objects $<TARGET_OBJECTS:${target}>)
      endif()
      list(APPEND interface ${target})
    endforeach()
    if(objects)
      add_library(tenuto${suffix} STATIC ${objects})
      set_target_properties(tenuto${suffix} PROPERTIES LINKER_LANGUAGE CXX)
    else()
      add_library(tenuto${suffix} INTERFACE)
    endif()
    add_dependencies(libraries ${interface} tenuto${suffix})
    # Usage requirements (headers, flags, packages) come from the layers; installed, from here.
    target_link_libraries(tenuto${suffix} INTERFACE "$<BUILD_INTERFACE:${interface}>")
    if(objects AND TENUTO_INSTALL)
      tenuto_install_interface(tenuto${suffix})
    endif()
    add_library(tenuto::tenuto${suffix} ALIAS tenuto${suffix})
  endforeach()
endfunction()

# A program of tools/ or bench/: sees include/ and its own folder, no private header. TRACED links
# the traced build, and builds nothing where there is none.
function(tenuto_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TRACED" "OUTPUT_NAME" "SOURCES;LIBS")
  set(library tenuto)
  if(arg_TRACED)
    if(NOT TENUTO_BUILD_TRACED)
      return()
    endif()
    set(library tenuto_traced)
  endif()
  add_executable(${name} ${arg_SOURCES})
  tenuto_unity(${name})
  target_compile_options(${name} PRIVATE $<$<CONFIG:Debug>:-O0>)  # its time is the library's
  target_link_libraries(${name} PRIVATE ${library} ${arg_LIBS})
  if(arg_OUTPUT_NAME)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME ${arg_OUTPUT_NAME})
  endif()
  add_dependencies(programs ${name})
endfunction()

# What test programs see: everything. Their private headers are found from the top, src/ and tests/.
function(tenuto_test_sees target)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/src"
                                               "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(${target} PRIVATE TENUTO_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()

# Compiles TARGET with tests/support/headers.h, which the compiler has read before. Headers that were
# read fit only what has the same flags: those that KIND names, of the build that SUFFIX names.
#   fast, quick  a program, optimised or not    part  the objects of a part
function(tenuto_test_headers target kind suffix)
  if(NOT TENUTO_PCH)
    return()
  endif()
  set(headers tests_headers_${kind}${suffix})
  if(NOT TARGET ${headers})
    set(source "${CMAKE_BINARY_DIR}/tests/headers.cc")
    file(CONFIGURE OUTPUT "${source}" CONTENT "int main() {}\n")
    if(kind STREQUAL "part")
      add_library(${headers} OBJECT EXCLUDE_FROM_ALL "${source}")
    else()
      add_executable(${headers} EXCLUDE_FROM_ALL "${source}")  # as a test, and never linked
    endif()
    target_link_libraries(${headers} PRIVATE tenuto${suffix} GTest::gtest)
    target_precompile_headers(${headers} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/headers.h")
    if(kind STREQUAL "quick")
      target_compile_options(${headers} PRIVATE $<$<CONFIG:Debug>:-O0>)
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# The objects of files that several programs of tests/ may contain, each compiled once for all of
# them; LIBS for their headers. SUFFIX names the build, as everywhere.
function(tenuto_test_parts target suffix)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LIBS")
  foreach(file IN LISTS arg_SOURCES)
    file(REAL_PATH "${file}" file)
    file(RELATIVE_PATH part "${PROJECT_SOURCE_DIR}" "${file}")
    string(MAKE_C_IDENTIFIER "part_${part}${suffix}" part)
    if(NOT TARGET ${part})
      add_library(${part} OBJECT "${file}")
      target_link_libraries(${part} PRIVATE tenuto${suffix} GTest::gtest)
      tenuto_test_sees(${part})
      tenuto_test_headers(${part} part "${suffix}")
    endif()
    target_link_libraries(${part} PRIVATE ${arg_LIBS})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${part}>)
  endforeach()
endfunction()

# A `_test` calls everything once: not optimised, it takes less than half the time where there are
# sanitizers.
function(tenuto_test_speed target kind suffix)
  set(flags fast)
  if(kind STREQUAL "test" AND NOT suffix)
    set(flags quick)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O0>)
  endif()
  tenuto_test_headers(${target} ${flags} "${suffix}")
endfunction()

# A program of tests/ that others start: its files are listed like those of a test.
function(tenuto_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_executable(${name})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  tenuto_test_parts(${name} "" SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
endfunction()

# One file tests/NAME.cc, one program, one ctest entry a case. The suffix of the name is the kind
# and the label. TRACED builds it against the traced libraries (and not at all where there is none). LAYER links
# only up to that layer, so that the layers above need not compile. AFTER_CRASHES runs it when all
# other crash tests have succeeded.
function(tenuto_test name)
  if(NOT TENUTO_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "TRACED;AFTER_CRASHES" "LAYER;TIMEOUT"
                        "SOURCES;LIBS;DEFINES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tenuto_test(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
  endif()
  string(REGEX REPLACE ".*_" "" kind ${name})
  if(NOT kind IN_LIST TENUTO_TEST_KINDS)
    message(FATAL_ERROR "tenuto_test(${name}): must end in one of ${TENUTO_TEST_KINDS}")
  endif()
  set(suffix "")
  if(arg_TRACED)
    if(NOT TENUTO_BUILD_TRACED)
      return()
    endif()
    set(suffix _traced)
  endif()
  set(library tenuto${suffix})
  if(arg_LAYER)
    set(library tenuto_${arg_LAYER}${suffix})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()

  add_executable(${name} ${name}.cc)
  tenuto_test_sees(${name})
  tenuto_test_speed(${name} ${kind} "${suffix}")
  if(arg_DEFINES)  # of its own: so are its objects
    target_compile_definitions(${name} PRIVATE ${arg_DEFINES})
    target_sources(${name} PRIVATE ${arg_SOURCES})
  else()
    tenuto_test_parts(${name} "${suffix}" SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
  endif()
  target_link_libraries(${name} PRIVATE ${library} ${arg_LIBS} GTest::gmock GTest::gtest_main)
  add_dependencies(tests_${kind} ${name})

  set(properties LABELS ${kind} TIMEOUT ${arg_TIMEOUT})
  if(kind STREQUAL "stress")
    list(APPEND properties PROCESSORS 2)
  endif()
  if(kind STREQUAL "crash")
    # Each leaves the names of the fences that it crashed at, for tests/fence_coverage_crash.cc.
    set(folder "${CMAKE_BINARY_DIR}/fence_coverage")
    list(APPEND properties ENVIRONMENT "TENUTO_CRASH_COVERAGE=${folder}")
    if(arg_AFTER_CRASHES)
      list(APPEND properties FIXTURES_REQUIRED crashes)
    else()
      list(APPEND properties FIXTURES_SETUP crashes FIXTURES_REQUIRED fence_coverage_folder)
    endif()
    if(NOT TEST fence_coverage_folder)
      add_test(NAME fence_coverage_folder
               COMMAND sh -c "rm -rf '${folder}' && mkdir -p '${folder}'")
      set_tests_properties(fence_coverage_folder PROPERTIES FIXTURES_SETUP fence_coverage_folder)
    endif()
  endif()
  # Cases are listed when ctest starts: a program that dies while listing must not stop the build.
  # The usual 5 seconds are too few on a machine that stands still for a moment; ctest would end.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
                       PROPERTIES ${properties})
endfunction()

# A fuzz target fuzz_NAME of fuzz/fuzz_NAME.cc, and its corpus fuzz/corpus/NAME as the ctest entry
# fuzz_NAME_corpus. Where the build has libFuzzer (preset fuzz) that runs the corpus alone; elsewhere
# fuzz/driver.cc is the main, and MUTATIONS of the corpus are run, too.
function(tenuto_fuzz name)
  if(NOT TENUTO_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MUTATIONS" "SOURCES;LIBS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_MUTATIONS)
    message(FATAL_ERROR "tenuto_fuzz(${name}): no MUTATIONS, or unknown ${arg_UNPARSED_ARGUMENTS}")
  endif()
  set(target fuzz_${name})
  set(corpus "${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name}")
  set(sources fuzz/${target}.cc fuzz/options.cc ${arg_SOURCES})
  if(NOT TENUTO_SANITIZE MATCHES "fuzzer")
    list(APPEND sources fuzz/driver.cc)
  endif()
  tenuto_test_program(${target} SOURCES ${sources} LIBS ${arg_LIBS})
  if(TENUTO_SANITIZE MATCHES "fuzzer")
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${target}_corpus COMMAND ${target} -runs=0 "${corpus}")
  else()
    add_test(NAME ${target}_corpus COMMAND ${target} --mutations ${arg_MUTATIONS} "${corpus}")
  endif()
  set_tests_properties(${target}_corpus PROPERTIES LABELS fuzz TIMEOUT 300)
  add_dependencies(tests_fuzz ${target})
  add_dependencies(fuzz_targets ${target})
endfunction()

# tenuto_c_test(NAME_test): a test of the C API, a program in C that ends with 0.
function(tenuto_c_test name)
  if(NOT TENUTO_BUILD_TESTS)
    return()
  endif()
  add_executable(${name} ${name}.c)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_options(${name} PRIVATE -Wall -Wextra -Werror)
  # The language of its last link step: the library is C++.
  set_target_properties(${name} PROPERTIES C_STANDARD 99 C_EXTENSIONS ON LINKER_LANGUAGE CXX)
  target_link_libraries(${name} PRIVATE tenuto)
  add_dependencies(tests_test ${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS test TIMEOUT 120)
endfunction()

# Compiles every public header alone: each must include what it needs, and have no warning of its
# own. The list is read from the folder, for a header forgotten here would be one unchecked.
function(tenuto_check_public_headers)
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include"
       "${PROJECT_SOURCE_DIR}/include/tenuto/*.h")
  set(sources "")
  foreach(header IN LISTS headers)
    string(REPLACE "/" "_" name ${header})
    set(source "${CMAKE_CURRENT_BINARY_DIR}/headers/${name}.cc")
    set(traced "")
    if(header STREQUAL "tenuto/crash.h")
      set(traced "#define TENUTO_TRACED\n")
    endif()
    file(CONFIGURE OUTPUT "${source}" CONTENT "${traced}#include \"${header}\"\n")
    list(APPEND sources "${source}")
  endforeach()
  add_library(public_headers OBJECT ${sources})
  target_include_directories(public_headers PRIVATE "${PROJECT_SOURCE_DIR}/include")
  if(TENUTO_NOEXCEPT)
    target_compile_options(public_headers PRIVATE -fno-exceptions -fno-rtti)
  endif()
endfunction()
