#include "tools/pmemobj/blocks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tenuto/persist.h"
#include "tools/pmemobj/error.h"

namespace TENUTO_NS::pmemobj {

namespace {
constexpr unsigned kClassShift = 48;

// An allocation class that the program made (ctl.cc). It tells here only the alignment and whether
// objects have types.
int class_of(OpenPool& pool, Wanted& wanted, AllocOptions& options) {
  const auto id = static_cast<unsigned>(wanted.flags >> kClassShift);
  if (id == 0) return 0;
  const std::lock_guard lock(pool.classes_mu);
  const auto it = pool.classes.find(id);
  if (it == pool.classes.end()) {
    return refuse(EINVAL, "there is no allocation class %u in this pool", id);
  }
  if (it->second.header_type == POBJ_HEADER_NONE) wanted.type_num = 0;
  options.align = std::max<std::uint64_t>(options.align, it->second.alignment);
  return 0;
}
}  // namespace

int options_for(OpenPool& pool, Wanted& wanted, std::uint64_t valid_flags, AllocOptions& options) {
  if ((wanted.flags & ~valid_flags) != 0) {
    return refuse(EINVAL, "unknown flags 0x%llx",
                  static_cast<unsigned long long>(wanted.flags & ~valid_flags));
  }
  if (wanted.bytes == 0) return refuse(EINVAL, "allocation with size 0");
  if (wanted.bytes > PMEMOBJ_MAX_ALLOC_SIZE) return refuse(ENOMEM, "requested size too large");
  if (const int error = class_of(pool, wanted, options); error != 0) return error;
  options.type = block_type(wanted.type_num);
  if (options.type == 0) return refuse(EINVAL, "the type number 2^64 - 1 cannot be used");
  options.zero = (wanted.flags & POBJ_FLAG_ZERO) != 0;
  if (options.zero) {  // as all usable bytes are zero, a later zrealloc need zero only what it adds
    const auto usable = pool.heap().usable_bytes(wanted.bytes, options.align, true);
    if (usable) wanted.bytes = *usable;
  }
  return 0;
}

Result<heap::Block> reserve_block(OpenPool& pool, std::uint64_t bytes,
                                  const AllocOptions& options) {
  TENUTO_TRY(pool.impl->usable());
  const auto reserve = [&] {
    return pool.heap().reserve_typed(bytes, options.type, options.align);
  };
  Result<heap::Block> block = reserve();
  if (!block && block.error() == Status::full) {  // ended transactions may still hold some
    pool.impl->engine->reclaim(pool.impl->engine->mine());
    block = reserve();
  }
  if (block && options.zero) zero_flush(pool.at(block->offset.value), bytes);
  return block;
}

}  // namespace TENUTO_NS::pmemobj
