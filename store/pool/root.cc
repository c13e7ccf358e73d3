// The root object, from which a program finds all others. One word of the head page points to it,
// and one line has the name and size with which it was made.
//
//   name line, zeroed object | root word        a root word promises a name and a zeroed object
#include <algorithm>
#include <cstring>

#include "store/pool/pool_impl.h"
#include "tenuto/persist.h"

namespace TENUTO_NS {

namespace {

constexpr std::size_t kNameBytes = 56;  // with a terminating zero

struct RootName {
  char name[kNameBytes];
  std::uint64_t bytes;
};
static_assert(pm::OnMedia<RootName> && sizeof(RootName) == sizeof(pm::HeadPage::layout));

}  // namespace

Result<void*> PoolImpl::root(std::string_view layout, std::uint64_t bytes, Report* report) {
  if (layout.empty() || layout.size() >= kNameBytes || layout.find('\0') != layout.npos) {
    return fail(Status::invalid_argument, report, "the layout's name must have 1..55 characters");
  }
  const std::lock_guard lock(root_mu);
  auto& word = reinterpret_cast<PtrWord&>(file->head().roots[pm::kRootUser]);
  auto& name = reinterpret_cast<RootName&>(file->head().layout);
  if (word.raw != 0) {
    void* object = PtrWord::decode(&word, word.raw);
    if (!file->contains(object) || !heap->find_allocated(file->offset_of(object))) {
      return fail(Status::corrupt, report, "the root word leads to no object",
                  file->where({pm::kHeadPageOffset}, "roots"));
    }
    const std::string_view there(name.name, ::strnlen(name.name, kNameBytes));
    if (there != layout || name.bytes != bytes) {
      return fail(Status::invalid_argument, report, "the root object has another layout",
                  file->path(), std::string(layout) + " of " + std::to_string(bytes) + " bytes",
                  std::string(there) + " of " + std::to_string(name.bytes) + " bytes");
    }
    return object;
  }
  const Result<heap::Block> block = heap->reserve(bytes, heap::Kind::logged);
  if (!block) return block.error();
  RootName fresh{};
  std::copy(layout.begin(), layout.end(), fresh.name);
  fresh.bytes = bytes;
  copy_flush(&name, &fresh, sizeof fresh);
  zero_flush(file->at<void>(block->offset), block->bytes);
  // The first fence of publish makes both durable, before the root word changes.
  TENUTO_TRY(heap->publish(*block, word));
  return file->at<void>(block->offset);
}

}  // namespace TENUTO_NS
