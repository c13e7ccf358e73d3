// What the drop-in keeps on media: its directory, which is the root object of the Tenuto pool.
//
// An object of libpmemobj is a block with a type, which is its type number + 1: a walk must show
// the objects of type 0, too. So there is no header in front of an object. The root object's type
// number is 0, and no walk shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tenuto/units.h"

namespace TENUTO_NS::pmemobj {

inline constexpr char kRootLayout[] = "libpmemobj drop-in 1";
inline constexpr std::size_t kLayoutMax = 1024;  // with a terminating zero, as in libpmemobj

struct Directory {
  std::uint64_t uuid_lo;     // never 0: it is stored last, so 0 is a directory that was never made
  std::uint64_t root;        // offset of the root object; 0: there is none
  std::uint64_t root_bytes;  // as asked for
  std::uint64_t unused[5];
  char layout[kLayoutMax];
};
static_assert(std::is_trivially_copyable_v<Directory>);
static_assert(sizeof(Directory) == 64 + kLayoutMax && offsetof(Directory, layout) == 64);

inline constexpr std::uint64_t block_type(std::uint64_t type_num) { return type_num + 1; }
inline constexpr std::uint64_t type_num_of(std::uint64_t block_type) { return block_type - 1; }

}  // namespace TENUTO_NS::pmemobj
