// Addresses of closed pools, for the watch for mistakes (tenuto/mistakes.h). A pool that was
// watched leaves its addresses reserved without access when it is closed. So nothing else gets
// them, and who follows a pointer into the pool is stopped at once: the handler of SIGSEGV here
// writes which pool that was and what to do to standard error, and then calls the handler that was
// there before.
//
// Only addresses are kept, up to kClosedPoolsKept pools and kClosedBytesKept bytes; the oldest go
// first, and all when an open needs addresses. A fork inherits them, and is told the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

inline constexpr std::size_t kClosedPoolsKept = 32;
inline constexpr std::uint64_t kClosedBytesKept = 16ull << 40;

// Takes over [begin, begin + bytes), which is mapped and no longer used: afterwards it is reserved
// without access. False: the system refused, and the caller unmaps it. The first call installs the
// handler, which then stays.
bool keep_closed_pool(void* begin, std::uint64_t bytes, std::string_view path) noexcept;

// Gives all of these addresses back. False: there were none.
bool release_closed_pools() noexcept;

// "the closed pool PATH (offset 4096, closed at ...)": what was at the address. Empty: no pool that
// is kept. Cost: a look at each of them.
std::string closed_pool_at(const void* p);

}  // namespace TENUTO_NS::pm
