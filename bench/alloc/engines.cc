// The list of allocators; see allocator.h.
#include <algorithm>
#include <array>
#include <iterator>

#include "bench/alloc/allocator.h"

namespace bench {
namespace {

constexpr const char* kTenutoMedia = "auto,line,cache,model,journal";
constexpr const char* kPmdkMedia = "line,cache";

constexpr std::array kAllocators = {
    AllocatorKind{"tenuto", "tenuto", "log", make_tenuto_logged, tenuto_logged_settings, true,
                  kTenutoMedia},
    AllocatorKind{"tenuto-v", "tenuto", "log, versioned", make_tenuto_versioned,
                  tenuto_versioned_settings, true, kTenutoMedia},
    AllocatorKind{"tenuto-gc", "tenuto", "gc", make_tenuto_gc, tenuto_gc_settings, true,
                  kTenutoMedia},
    AllocatorKind{"tenuto-internal", "tenuto", "internal", make_tenuto_internal,
                  tenuto_internal_settings, true, kTenutoMedia},
    AllocatorKind{"tenuto-reserve", "tenuto", "reserve", make_tenuto_reserved,
                  tenuto_reserved_settings, false, kTenutoMedia},
    AllocatorKind{"tenuto-compact", "tenuto", "log, compacted", make_tenuto_compacted,
                  tenuto_compacted_settings, true, kTenutoMedia},
#ifdef TENUTO_PEER_PMEMOBJ
    AllocatorKind{"pmdk", "pmdk", "", make_pmdk_atomic, pmdk_atomic_settings, true, kPmdkMedia},
    AllocatorKind{"pmdk-tx", "pmdk-tx", "", make_pmdk_transactional, pmdk_transactional_settings,
                  true, kPmdkMedia},
    AllocatorKind{"pmdk-reserve", "pmdk-reserve", "", make_pmdk_published, pmdk_published_settings,
                  true, kPmdkMedia},
#endif
    AllocatorKind{"mimalloc", "mimalloc", "", make_mimalloc, mimalloc_settings, false, ""},
    AllocatorKind{"jemalloc", "jemalloc", "", make_jemalloc, jemalloc_settings, false, ""},
    AllocatorKind{"glibc", "glibc", "", make_glibc, glibc_settings, false, ""},
};

}  // namespace

std::span<const AllocatorKind> allocator_kinds() { return kAllocators; }

const AllocatorKind* find_allocator(std::string_view name) {
  const auto at = std::find_if(kAllocators.begin(), kAllocators.end(),
                               [&](const AllocatorKind& kind) { return name == kind.name; });
  return at == kAllocators.end() ? nullptr : &*at;
}

std::vector<std::string> allocators_of(std::initializer_list<const char*> names) {
  std::vector<std::string> built;
  std::copy_if(names.begin(), names.end(), std::back_inserter(built),
               [](const char* name) { return find_allocator(name) != nullptr; });
  return built;
}

bool has_medium(const AllocatorKind& kind, std::string_view medium) {
  std::string_view rest = kind.media;
  while (!rest.empty()) {
    const std::string_view first = rest.substr(0, rest.find(','));
    if (first == medium) return true;
    rest.remove_prefix(std::min(rest.size(), first.size() + 1));
  }
  return false;
}

}  // namespace bench
