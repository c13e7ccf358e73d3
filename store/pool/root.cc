// The root object, from which a program finds all others. One word of the head page points to it,
// and one line has the name and size with which it was made.
//
//   name line, zeroed object | root word        a root word promises a name and a zeroed object
//
// A root is replaced by an object transaction. Its undo log has the root word and the name line,
// and it allocates the new object and frees the old one.
#include <algorithm>
#include <cstring>

#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "store/pool/pool_impl.h"
#include "tenuto/persist.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

namespace {

constexpr std::size_t kNameBytes = 56;  // with a terminating zero

struct RootName {
  char name[kNameBytes];
  std::uint64_t bytes;

  static RootName of(std::string_view layout, std::uint64_t bytes) {
    RootName n{};
    std::copy(layout.begin(), layout.end(), n.name);
    n.bytes = bytes;
    return n;
  }
};
static_assert(pm::OnMedia<RootName> && sizeof(RootName) == sizeof(pm::HeadPage::layout));

PtrWord& root_word(pm::PoolFile& file) {
  return reinterpret_cast<PtrWord&>(file.head().roots[pm::kRootUser]);
}
RootName& root_name(pm::PoolFile& file) { return reinterpret_cast<RootName&>(file.head().layout); }

std::string in_words(std::string_view layout, std::uint64_t bytes) {
  return std::string(layout) + " of " + std::to_string(bytes) + " bytes";
}

Status in_hook(Report* report) {
  return fail(Status::invalid_argument, report,
              "the hook of grow_root has the old and the new root, and asks for no other");
}

}  // namespace

struct PoolImpl::StoredRoot {
  void* object = nullptr;  // null: there is none
  std::string layout;
  std::uint64_t bytes = 0;

  bool is(std::string_view l, std::uint64_t b) const { return layout == l && bytes == b; }
};

// Also checks the name that the caller wants. REQUIRES: root_mu.
Result<PoolImpl::StoredRoot> PoolImpl::stored_root(std::string_view layout, Report* report) const {
  const pm::MetadataOpen rights;
  if (layout.empty() || layout.size() >= kNameBytes || layout.find('\0') != layout.npos) {
    return fail(Status::invalid_argument, report, "the layout's name must have 1..55 characters");
  }
  const PtrWord& word = root_word(*file);
  if (word.raw == 0) return StoredRoot{};
  const RootName& name = root_name(*file);
  StoredRoot there;
  there.object = PtrWord::decode(&word, word.raw);
  if (!file->contains(there.object) || !heap->find_allocated(file->offset_of(there.object))) {
    TENUTO_TRY(heap->was_read(report));
    return fail(Status::corrupt, report, "the root word leads to no object",
                file->where({pm::kHeadPageOffset}, "roots"));
  }
  there.layout.assign(name.name, ::strnlen(name.name, kNameBytes));
  there.bytes = name.bytes;
  return there;
}

Result<void*> PoolImpl::make_root(std::string_view layout, std::uint64_t bytes, Report* report) {
  const auto cannot = [&](Status s) {
    return file->failed(s, report, "the root object cannot be made", file->path());
  };
  const pm::MetadataOpen rights;
  const Result<heap::Block> block = heap->reserve(bytes, heap::Kind::logged);
  if (!block) return cannot(block.error());
  const RootName fresh = RootName::of(layout, bytes);
  copy_flush(&root_name(*file), &fresh, sizeof fresh);
  zero_flush(file->at<void>(block->offset), heap->usable(*block));
  // The first fence of publish makes both durable, before the root word changes.
  const Status published = heap->publish(*block, root_word(*file));
  if (published != Status::ok) return cannot(published);
  heap->fence_thread();  // Consistency::gc: without the root everything is lost
  return file->at<void>(block->offset);
}

Result<void*> PoolImpl::root(std::string_view layout, std::uint64_t bytes, Report* report) {
  if (root_grower.load() == std::this_thread::get_id()) return in_hook(report);
  const std::lock_guard lock(root_mu);
  const Result<StoredRoot> there = stored_root(layout, report);
  if (!there) return there.error();
  if (there->object == nullptr) return make_root(layout, bytes, report);
  if (there->is(layout, bytes)) return there->object;
  return fail(Status::invalid_argument, report,
              "the root object has another layout; grow_root replaces a smaller one", file->path(),
              in_words(layout, bytes), in_words(there->layout, there->bytes));
}

Result<void*> PoolImpl::grow_root(std::string_view layout, std::uint64_t bytes,
                                  const MigrateRoot& migrate, Report* report) {
  if (root_grower.load() == std::this_thread::get_id()) return in_hook(report);
  const std::lock_guard lock(root_mu);
  const Result<StoredRoot> there = stored_root(layout, report);
  if (!there) return there.error();
  if (there->object == nullptr) {
    const Result<void*> made = make_root(layout, bytes, report);
    TENUTO_TRY(made.error());
    TENUTO_TRY(acknowledge(durability));
    return *made;
  }
  if (there->is(layout, bytes)) return there->object;
  const auto refused = [&](const char* what) {
    return fail(Status::invalid_argument, report, what, file->path(), in_words(layout, bytes),
                in_words(there->layout, there->bytes));
  };
  if (there->bytes > bytes) return refused("the root object is larger, and a root does not shrink");
  if (!migrate && there->layout != layout) {
    return refused("the root object has another layout, and there is no hook that migrates it");
  }
  if (engine->mine().active()) {
    return refused("the root cannot grow inside a transaction of the same thread; end it first");
  }
  return replace_root(*there, layout, bytes, migrate, report);
}

Result<void*> PoolImpl::replace_root(const StoredRoot& old, std::string_view layout,
                                     std::uint64_t bytes, const MigrateRoot& migrate,
                                     Report* report) {
  const auto failed = [&](Status s, const char* what) {
    return file->failed(s, report, what, file->path());
  };
  const Status writable = file->writable();
  if (writable != Status::ok) {
    return failed(writable, "the root object must grow, but nothing can be written to the pool");
  }
  Transaction tx(engine->mine(), "Pool::grow_root", 0);  // not a place of this file
  TENUTO_TRY(tx.status());
  const Result<void*> fresh = tx.alloc(bytes, {.zero = true});
  if (!fresh) {
    return failed(fresh.error(), "the larger root object cannot be made");
  }
  if (migrate) {
    struct Guard {
      std::atomic<std::thread::id>& grower;
      ~Guard() { grower.store({}); }
    } guard{root_grower};
    root_grower.store(std::this_thread::get_id());
    // A level of its own: the hook's commit would else keep the new root, to which nothing leads.
    Transaction level(engine->mine());
    Status s = migrate({old.layout, old.object, old.bytes}, *fresh, level);
    if (s == Status::ok && level.status() != Status::closed) s = level.commit();
    if (s != Status::ok) return failed(s, "the hook that migrates the root object failed");
  } else {
    std::memcpy(*fresh, old.object, old.bytes);
  }
  PtrWord& word = root_word(*file);
  RootName& name = root_name(*file);
  const RootName renamed = RootName::of(layout, bytes);
  TENUTO_TRY(tx.add_later(word));
  if (!TENUTO_PLANT("store_root_name_not_saved")) TENUTO_TRY(tx.add_later(name));
  if (!TENUTO_PLANT("store_old_root_kept")) {
    const Status s = tx.free(old.object);
    if (s != Status::ok) return failed(s, "the old root object cannot be freed, or the hook did");
  }
  TENUTO_TRY(tx.ready());
  const pm::MetadataOpen rights;
  std::memcpy(&name, &renamed, sizeof renamed);
  __atomic_store_n(&word.raw, PtrWord::encode(&word, *fresh), __ATOMIC_RELEASE);
  TENUTO_TRY(tx.commit());
  TENUTO_TRY(acknowledge(durability));
  return *fresh;
}

}  // namespace TENUTO_NS
