# The choices of a build and the flags that every target of this project shares.

include_guard(GLOBAL)

# Alone, the library needs oneTBB and LZ4. The presets say which of the rest they build.
option(TENUTO_BUILD_TOOLS "The command line tool; needs fmt and CLI11" ${PROJECT_IS_TOP_LEVEL})
option(TENUTO_BUILD_BENCH "The benchmarks, with the peers that are there; needs fmt and CLI11" OFF)
option(TENUTO_BUILD_TESTS "The tests; needs GoogleTest and fmt, and for those of the tool TOOLS" OFF)
option(TENUTO_BUILD_TRACED "The traced build of the library and what needs it" OFF)
option(TENUTO_UNITY "Compile several files of a library or program at once" ON)
option(TENUTO_PCH "Compile the tests with headers that the compiler has read before" ON)
option(TENUTO_DEBUG_CHECKS "Compile costly checks and the plants in, which the tests need" OFF)
option(TENUTO_NOEXCEPT "Compile the library with -fno-exceptions -fno-rtti" OFF)
option(TENUTO_WERROR "Warnings are errors" ${PROJECT_IS_TOP_LEVEL})
set(TENUTO_PEERS_ALL rocksdb lmdb leveldb wiredtiger sqlite3 absl pmemobj mimalloc jemalloc)
set(TENUTO_PEERS "all" CACHE STRING "What the benchmarks compare with, if it is there: all, or a list")
set(TENUTO_SANITIZE "" CACHE STRING "Value for -fsanitize=, e.g. address,undefined or thread")
# CRC32C, popcnt and cmpxchg16b are used unconditionally; wider vectors are chosen per function.
set(TENUTO_ARCH "x86-64-v2" CACHE STRING "Value for -march=")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug or Release" FORCE)
endif()
# The flags that are measured, also without a preset. Who gave others keeps them.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  foreach(language IN ITEMS C CXX)
    set(CMAKE_${language}_FLAGS_RELEASE "-O2 -g1" CACHE STRING "Flags of a release build" FORCE)
  endforeach()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(TENUTO_CCACHE ccache)
foreach(language IN ITEMS C CXX)
  if(TENUTO_CCACHE AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
    set(CMAKE_${language}_COMPILER_LAUNCHER "${TENUTO_CCACHE}")
  endif()
  # Without this, ccache keeps nothing that was compiled with headers read before (TENUTO_PCH).
  if(CMAKE_${language}_COMPILER_LAUNCHER MATCHES "(^|/)ccache$")
    set(CMAKE_${language}_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros
                                            ${CMAKE_${language}_COMPILER_LAUNCHER})
  endif()
endforeach()

add_compile_options(-march=${TENUTO_ARCH} -Wall -Wextra -Wconversion -Wshadow -Wundef)
if(TENUTO_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # -Wno-sign-conversion: g++ leaves it out of -Wconversion for C++; one meaning for both compilers.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety> -Wno-sign-conversion)
endif()
if(TENUTO_BUILD_TESTS AND NOT TENUTO_DEBUG_CHECKS)
  message(FATAL_ERROR "TENUTO_BUILD_TESTS needs TENUTO_DEBUG_CHECKS=ON: the tests switch planted "
                      "mistakes on. The preset dev has both.")
endif()
if(TENUTO_DEBUG_CHECKS)
  add_compile_definitions(TENUTO_DEBUG_CHECKS)
endif()
if(TENUTO_SANITIZE)
  add_compile_options(-fsanitize=${TENUTO_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TENUTO_SANITIZE})
  # Checks for null take a fifth of the compiler's time, and AddressSanitizer reports the loads and
  # stores. The fuzz build has them.
  if(TENUTO_SANITIZE STREQUAL "address,undefined")
    add_compile_options(-fno-sanitize=null)
  endif()
  # The traced build brings its own runtime for -fsanitize=thread; two runtimes do not mix.
  set(TENUTO_BUILD_TRACED OFF)
endif()
if(TENUTO_NOEXCEPT)
  set(TENUTO_BUILD_TRACED OFF)
endif()
# Some 250 programs are linked, most of them tests: gold takes a third of the time.
find_program(TENUTO_GOLD ld.gold)
if(TENUTO_GOLD AND CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_link_options("$<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-fuse-ld=gold>")
endif()
