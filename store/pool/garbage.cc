// Garbage of a pool's objects: what no pointer leads to (tenuto/garbage.h). The heap follows the
// pointers (heap/reach.cc). What is freed is freed by object transactions, some blocks at a time:
// a crash on the way leaves the rest allocated.
#include "tenuto/garbage.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "heap/readings.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "store/pool/pool_impl.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

namespace {
constexpr std::size_t kFreedAtOnce = 256;

struct Object {
  heap::Block block;
  std::uint64_t type = 0;
};

// Counts blocks by type and size.
class Rows {
 public:
  void add(const Object& o) {
    GarbageRow& row = rows_[{o.type, o.block.bytes}];
    row = {o.type, o.block.bytes, row.blocks + 1};
  }
  std::vector<GarbageRow> sorted() const {
    std::vector<GarbageRow> all;
    for (const auto& [key, row] : rows_) all.push_back(row);
    return all;
  }

 private:
  std::map<std::pair<std::uint64_t, std::uint64_t>, GarbageRow> rows_;
};
}  // namespace

Result<PoolOffset> PoolImpl::root_object(Report* report) {
  const pm::MetadataOpen rights;
  const auto& word = reinterpret_cast<const PtrWord&>(file->head().roots[pm::kRootUser]);
  const void* const root = PtrWord::decode(&word, word.raw);
  if (root == nullptr) return PoolOffset{};
  if (file->contains(root) && heap->find_allocated(file->offset_of(root))) {
    return file->offset_of(root);
  }
  return fail(Status::corrupt, report, "the root word leads to no object",
              file->where({pm::kHeadPageOffset}, "roots"));
}

Status PoolImpl::no_memory_for_marks(Report* report) const {
  return fail(Status::full, report, "the system refuses memory for the marks of the blocks",
              file->path());
}

Result<Garbage> PoolImpl::find_garbage(const GarbageOptions& options, std::vector<PoolOffset>& lost,
                                       Report* report) {
  heap::Readings readings(file->bytes());
  const heap::ReachedMarks& marks = readings.reached;
  if (!readings.there()) return no_memory_for_marks(report);
  Garbage g;
  heap::Heap::Reached reached;
  const auto reach = [&](std::span<const PoolOffset> from) {
    const auto begin = std::chrono::steady_clock::now();
    heap->reach(from, options, readings, reached);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    g.mark_ms += took.count();
  };
  TENUTO_TRY(heap->was_read(report));
  const pm::MetadataOpen rights;  // the functions of `options` run without
  const Result<PoolOffset> root = root_object(report);
  if (!root) return root.error();
  if (*root) reach({&*root, 1});
  g.reached_blocks = reached.blocks;
  g.reached_bytes = reached.bytes;

  // What is reserved may be published next, with all that its pointers lead to.
  std::vector<PoolOffset> reserved;
  heap->for_each(heap::Kind::logged, [&](PoolOffset o, std::uint64_t) {
    if (!heap->find_allocated(o)) reserved.push_back(o);
  });
  reach(reserved);

  std::vector<Object> others;
  std::vector<PoolOffset> walked;
  heap->for_each(heap::Kind::logged, [&](PoolOffset o, std::uint64_t bytes) {
    if (marks.has(o) || !heap->find_allocated(o)) return;
    others.push_back({{o, heap->usable({o, bytes})}, heap->type_of(o)});
    if (others.back().type != 0) walked.push_back(o);
  });
  if (!TENUTO_PLANT("store_garbage_beside_walks_by_type")) {
    reach(walked);
  }
  // A page that could not be read was read as zeros, and led to nothing.
  TENUTO_TRY(file->bad_pages(report));

  Rows by_walks;
  Rows by_nothing;
  for (const Object& o : others) {
    const bool kept = marks.has(o.block.offset);
    (kept ? by_walks : by_nothing).add(o);
    if (!kept) lost.push_back(o.block.offset);
  }
  g.walked = by_walks.sorted();
  g.lost = by_nothing.sorted();
  return g;
}

Result<Garbage> Pool::find_garbage(const GarbageOptions& options, Report* report) {
  PoolImpl* const impl = impl_.get();
  if (impl == nullptr) return Status::closed;
  TENUTO_TRY(impl->usable());
  if (options.free) TENUTO_TRY(impl->file->writable(report));
  PoolStore::Standstill still;
  if (impl->store != nullptr) still = impl->store->stand_still();
  // What ended transactions have freed is no garbage.
  if (!impl->file->read_only()) {
    if (const Status s = impl->engine->drain(); s != Status::ok) {
      return fail(s, report, "an object transaction is open: end it first", impl->file->path());
    }
  }
  std::vector<PoolOffset> lost;
  Result<Garbage> found = impl->find_garbage(options, lost, report);
  if (!found || !options.free) return found;
  for (std::size_t i = 0; i < lost.size(); i += kFreedAtOnce) {
    const std::size_t end = std::min(lost.size(), i + kFreedAtOnce);
    const Status s = run([&](Transaction& tx) {
      for (std::size_t k = i; k < end; ++k) {
        TENUTO_TRY(tx.free(impl->file->at<void>(lost[k])));
      }
      return Status::ok;
    });
    if (s != Status::ok) {
      if (s == Status::corrupt || s == Status::io) {
        return impl->file->failed(s, report, "not all of the garbage is freed", impl->file->path());
      }
      return fail(s, report, "not all of the garbage is freed", impl->file->path(),
                  std::to_string(lost.size()) + " blocks", std::to_string(i));
    }
    found->freed_blocks += end - i;
  }
  for (const GarbageRow& row : found->lost) found->freed_bytes += row.bytes();
  return found;
}

}  // namespace TENUTO_NS
