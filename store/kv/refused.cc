#include "store/kv/refused.h"

#include <bit>
#include <string>

#include "store/kv/catalog.h"
#include "store/tree/leaf.h"
#include "store/tree/record.h"

namespace TENUTO_NS::store {

namespace {

Status refuse(const pm::PoolFile& file, const std::string& what, Report* report) {
  return fail(Status::wrong_version, report,
              what +
                  " was made with the protocol of one fence, which this version does not read: "
                  "dump it with version 0.1.0, the last that does, and load that here",
              file.path());
}

Status check_leaf(const pm::PoolFile& file, const Leaf& leaf, Report* report) {
  for (std::uint64_t used = bitmap_of(leaf) & kBitmapMask; used != 0; used &= used - 1) {
    const SlotWord word = leaf.slot[std::countr_zero(used)];
    Record r;
    if (!read_record(file, word.record(), r) || !is_of_one_fence(r.key, r.value)) continue;
    return refuse(file, "collection " + std::string(r.key), report);
  }
  return Status::ok;
}

}  // namespace

Status check_protocols(const pm::PoolFile& file, Report* report) {
  const std::uint64_t* head = file.head().store;
  const StoreWord word{head[kHeadWord]};
  if (word.of_one_fence({head[kHeadFirstLeaf]})) return refuse(file, "the store", report);
  PoolOffset at{file.head().roots[pm::kRootCatalog]};
  for (std::uint64_t leaves = file.bytes() / sizeof(Leaf); at && leaves > 0; --leaves) {
    if (at.value % kLineBytes != 0 || !file.in_range(at, sizeof(Leaf))) break;
    const Leaf& leaf = *file.at<Leaf>(at);
    TENUTO_TRY(check_leaf(file, leaf, report));
    at = next_of(leaf);
  }
  return Status::ok;
}

}  // namespace TENUTO_NS::store
