# Packages from Debian (tools/packages.txt). Finding is done here once; a target links only what it
# uses. Peers are the stores and allocators that the benchmarks compare with.

include_guard(GLOBAL)

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(TBB REQUIRED)
pkg_check_modules(lz4 REQUIRED IMPORTED_TARGET liblz4)

if(TENUTO_BUILD_TOOLS OR TENUTO_BUILD_BENCH)
  find_package(fmt REQUIRED)
  find_package(CLI11 REQUIRED)
endif()
if(TENUTO_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(TENUTO_BUILD_BENCH)
  find_package(benchmark REQUIRED)
  find_package(leveldb REQUIRED)
  find_package(mimalloc REQUIRED)
  pkg_check_modules(rocksdb REQUIRED IMPORTED_TARGET rocksdb)
  pkg_check_modules(lmdb REQUIRED IMPORTED_TARGET lmdb)
  pkg_check_modules(pmemobj REQUIRED IMPORTED_TARGET libpmemobj)
  pkg_check_modules(jemalloc REQUIRED IMPORTED_TARGET jemalloc)
  pkg_check_modules(wiredtiger REQUIRED IMPORTED_TARGET wiredtiger)
endif()
