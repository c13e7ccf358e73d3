// Compaction of objects (tenuto/compact.h).
//
// Pointers are followed as for garbage, and each word that leads to an object in a sparse slab is
// noted, or the object is fixed (heap/reach.cc). The heap chooses slabs without fixed objects, and
// hands out nothing from them (heap/evacuate.cc). Then objects move, up to kMovedAtOnce in one
// transaction:
//
//     new blocks; the words' old bytes to the log  |  objects made anew; words changed; old blocks
//     freed  |  commit
//
// Until the commit the old objects are authoritative: an abort, or recovery, stores the old bytes
// of the words, and the new blocks are free. From then on the new ones are, and the old blocks are
// free. A word that is in an object which has moved itself is at its new place (place_of).
#include "tenuto/compact.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <span>
#include <vector>

#include "heap/block_marks.h"
#include "pm/metadata_key.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/pool/pool_impl.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

namespace {

constexpr std::size_t kMovedAtOnce = 128;
using Link = heap::Heap::Links::Link;

struct Object {
  PoolOffset at;
  std::uint64_t bytes = 0;  // usable
  std::uint64_t type = 0;   // 0: it is only reserved
  PoolOffset to = {};       // where it moved
};

Status check(const CompactObjectsOptions& o, Report* report) {
  const auto refused = [&](const char* what, const char* where) {
    return fail(Status::invalid_argument, report, what, where);
  };
  if (!(o.occupancy > 0 && o.occupancy <= 1))
    return refused("a number above 0 and up to 1 is wanted", "CompactObjectsOptions::occupancy");
  for (const auto& [type, how] : o.types) {
    if (type == 0 || !how.references || !how.move || o.filters.count(type) != 0) {
      return refused(type == 0 ? "0 is no type" : "a type is named twice, or without its functions",
                     "CompactObjectsOptions::types");
    }
  }
  return Status::ok;
}

// Follows all pointers of the pool.
class Trace {
 public:
  Trace(PoolImpl& pool, const CompactObjectsOptions& o)
      : pool_(pool), options_{o.root_filter, o.filters, false, o.threads} {
    for (const auto& [type, how] : o.types) options_.filters[type] = how.references;
  }
  bool there() const { return marks_.there() && sparse_.there() && fixed_.there(); }

  Status run(double occupancy, Report* report) {
    heap::Heap& heap = *pool_.heap;
    const pm::MetadataOpen rights;
    const Result<PoolOffset> root = pool_.root_object(report);
    if (!root) return root.error();
    heap.find_sparse(occupancy, sparse_);
    if (*root) reach({&*root, 1});
    // A walk by type reaches what the root does not.
    std::vector<PoolOffset> from;
    heap.for_each(heap::Kind::logged, [&](PoolOffset o, std::uint64_t) {
      if (!marks_.has(o) && heap.type_of(o) != 0) from.push_back(o);
    });
    if (!TENUTO_PLANT("store_compact_objects_beside_walks_by_type")) reach(from);
    from.clear();
    // Nobody knows who reads the others, or publishes them.
    heap.for_each(heap::Kind::logged, [&](PoolOffset o, std::uint64_t bytes) {
      if (!marks_.has(o)) from.push_back(o);
      if (!sparse_.has(heap::Heap::slab_at(o))) return;
      objects.push_back({o, heap.usable({o, bytes}), heap.type_of(o)});
    });
    std::sort(objects.begin(), objects.end(),
              [](const Object& a, const Object& b) { return a.at < b.at; });
    links_.all_fixed = true;
    if (!TENUTO_PLANT("store_compact_objects_beside_lost_ones")) reach(from);
    const auto by_target = [](const Link& a, const Link& b) {
      return a.block != b.block ? a.block < b.block : a.word < b.word;
    };
    std::sort(links_.words.begin(), links_.words.end(), by_target);
    const auto same = [](const Link& a, const Link& b) { return a.word == b.word; };
    links_.words.erase(std::unique(links_.words.begin(), links_.words.end(), same),
                       links_.words.end());
    // A page that could not be read was read as zeros, and led to nothing.
    return pool_.file->bad_pages(report);
  }
  bool fixed(const Object& o) const { return fixed_.has(o.at); }
  std::span<const Link> words_to(const Object& o) const {
    const auto by_block = [](const Link& a, const Link& b) { return a.block < b.block; };
    const auto [first, last] =
        std::equal_range(links_.words.begin(), links_.words.end(), Link{{}, o.at}, by_block);
    return {first, last};
  }

  std::vector<Object> objects;  // of sparse slabs, by offset

 private:
  void reach(std::span<const PoolOffset> from) {
    pool_.heap->reach(from, options_, marks_, reached_, &links_);
  }

  PoolImpl& pool_;
  GarbageOptions options_;
  heap::BlockMarks marks_{pool_.file->bytes()};
  heap::BlockMarks sparse_{pool_.file->bytes()};
  heap::BlockMarks fixed_{pool_.file->bytes()};
  heap::Heap::Links links_{sparse_, fixed_};
  heap::Heap::Reached reached_;
};

// Moves the objects of a trace.
class Moves {
 public:
  Moves(Pool& pool, PoolImpl& impl, const CompactObjectsOptions& options, const Trace& trace,
        std::vector<Object> objects)
      : pool_(pool), impl_(impl), options_(options), trace_(trace), objects_(std::move(objects)) {}

  // full: the rest stays where it is.
  Status run(CompactObjectsStats& done, Report* report) {
    for (std::size_t i = 0; i < objects_.size(); i += kMovedAtOnce) {
      const std::size_t n = std::min(kMovedAtOnce, objects_.size() - i);
      const std::span<Object> some(&objects_[i], n);
      words_ = 0;
      const Status s = move(some, report);
      if (s != Status::ok) {
        for (Object& o : some) o.to = {};
        return s;
      }
      done.objects_moved += n;
      done.words_changed += words_;
      if (!options_.moved) continue;
      for (const Object& o : some) options_.moved(address(o.at), address(o.to));
    }
    return Status::ok;
  }

 private:
  Status move(std::span<Object> some, Report* report) {
    Transaction tx(pool_, "Pool::compact", 0);
    TENUTO_TRY(tx.status());
    for (Object& o : some) {
      AllocOptions wanted;
      wanted.type = o.type;
      // What both the block and its size are multiples of.
      wanted.align = std::uint64_t{1} << std::countr_zero(o.at.value | o.bytes | kFrameBytes);
      const Result<void*> block = tx.alloc(o.bytes, wanted);
      if (!block) return block.error();
      o.to = impl_.file->offset_of(*block);
    }
    for (const Object& o : some) {
      for (const Link& link : trace_.words_to(o)) {
        if (TENUTO_PLANT("store_compact_objects_word_not_logged")) continue;
        TENUTO_TRY(tx.add_later(place_of(link.word), sizeof(PtrWord)));
      }
    }
    TENUTO_TRY(tx.ready());
    for (const Object& o : some) make_anew(o);
    for (const Object& o : some) TENUTO_TRY(lead_to(o, report));
    for (const Object& o : some) {
      if (TENUTO_PLANT("store_compact_objects_old_one_kept")) continue;
      TENUTO_TRY(tx.free(address(o.at)));
    }
    return tx.commit(Durability::buffered);
  }
  void make_anew(const Object& o) const {
    if (TENUTO_PLANT("store_compact_objects_copies_bytes")) {
      return static_cast<void>(std::memcpy(address(o.to), address(o.at), o.bytes));
    }
    options_.types.at(o.type).move(address(o.to), address(o.at), o.bytes);
  }
  // Lets all words that led to the object lead to its new place.
  Status lead_to(const Object& o, Report* report) {
    for (const Link& link : trace_.words_to(o)) {
      auto& word = *static_cast<PtrWord*>(place_of(link.word));
      const auto* const target = static_cast<const std::byte*>(PtrWord::decode(&word, word.raw));
      const auto* const begin = static_cast<const std::byte*>(address(o.at));
      if (target < begin || target >= begin + o.bytes) {
        return fail(Status::invalid_argument, report,
                    "a pointer in a moved object does not lead where it led: see Movable::move",
                    impl_.file->where(link.word, "a pointer"));
      }
      const std::ptrdiff_t inside =
          TENUTO_PLANT("store_compact_objects_begins_only") ? 0 : target - begin;
      const void* const to = static_cast<const std::byte*>(address(o.to)) + inside;
      store_ordered(word.raw, PtrWord::encode(&word, to));
      words_ += 1;
    }
    return Status::ok;
  }

  void* address(PoolOffset o) const { return impl_.file->at<void>(o); }
  // Where the word is now: the object that it is in may have moved.
  void* place_of(PoolOffset word) const {
    const auto behind = std::upper_bound(objects_.begin(), objects_.end(), word,
                                         [](PoolOffset at, const Object& o) { return at < o.at; });
    if (behind == objects_.begin() || TENUTO_PLANT("store_compact_objects_words_stay")) {
      return address(word);
    }
    const Object& o = *std::prev(behind);
    const std::uint64_t inside = word.value - o.at.value;
    return address(o.to && inside < o.bytes ? o.to + inside : word);
  }

  Pool& pool_;
  PoolImpl& impl_;
  const CompactObjectsOptions& options_;
  const Trace& trace_;
  std::vector<Object> objects_;  // by offset
  std::uint64_t words_ = 0;      // that the transaction under way has changed
};

}  // namespace

Status PoolImpl::compact_objects(Pool& tx_pool, const CompactObjectsOptions& options,
                                 CompactObjectsStats& done, Report* report) {
  // The heap hands nothing out from the slabs that it chooses until end(), on every way out.
  struct Evacuating {
    PoolImpl& pool;
    const CompactObjectsOptions& options;
    bool begun = false;
    heap::Evacuation begin(std::span<const PoolOffset> stay) {
      begun = true;
      return pool.heap->begin_evacuation(options.occupancy, options.moves_max, stay,
                                         heap::Evacuees::typed);
    }
    std::uint64_t end() {
      if (!std::exchange(begun, false)) return 0;
      static_cast<void>(pm::had_memory([&] { pool.engine->reclaim(pool.engine->mine()); }));
      return pool.heap->end_evacuation();
    }
    ~Evacuating() { end(); }
  } evacuating{*this, options};
  TENUTO_TRY(heap->was_read(report));
  done.complete = evacuating.begin({}).slabs == 0;
  evacuating.end();
  if (done.complete) return Status::ok;  // nothing to gain, even if nothing is fixed

  Trace trace(*this, options);
  if (!trace.there()) return no_memory_for_marks(report);
  const auto begin = std::chrono::steady_clock::now();
  TENUTO_TRY(trace.run(options.occupancy, report));
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  done.mark_ms = took.count();

  std::vector<PoolOffset> stay;
  std::vector<Object> leaving;
  for (const Object& o : trace.objects) {
    const bool named = options.types.count(o.type) != 0;
    if (named && !trace.fixed(o)) {
      leaving.push_back(o);
    } else {
      stay.push_back(o.at);
    }
    done.objects_fixed += named && trace.fixed(o) ? 1 : 0;
  }
  const heap::Evacuation chosen = evacuating.begin(stay);
  std::erase_if(leaving, [this](const Object& o) { return !heap->leaving(o.at); });
  const Status s = Moves(tx_pool, *this, options, trace, std::move(leaving)).run(done, report);
  const std::uint64_t left = evacuating.end();
  done.slabs_emptied = chosen.slabs - left;
  done.complete = s == Status::ok && chosen.all && left == 0;
  if (s == Status::ok || s == Status::full) return Status::ok;  // incomplete, but sound
  if (s == Status::invalid_argument) return s;
  return file->failed(s, report, "not all objects are moved", file->path());
}

Result<CompactObjectsStats> Pool::compact(const CompactObjectsOptions& options, Report* report) {
  PoolImpl* const impl = impl_.get();
  if (impl == nullptr) return Status::closed;
  TENUTO_TRY(impl->usable());
  TENUTO_TRY(check(options, report));
  TENUTO_TRY(impl->file->writable(report));
  PoolStore::Standstill still;
  if (impl->store != nullptr) still = impl->store->stand_still();
  if (const Status s = impl->engine->drain(); s != Status::ok) {
    return fail(s, report, "an object transaction is open: end it first", impl->file->path());
  }
  CompactObjectsStats done;
  done.bytes_before = impl->file->bytes_on_disk();
  TENUTO_TRY(impl->compact_objects(*this, options, done, report));
  impl->heap->trim();
  TENUTO_TRY(impl->acknowledge(impl->durability));
  TENUTO_TRY(impl->file->bad_pages(report));
  done.bytes_after = impl->file->bytes_on_disk();
  return done;
}

}  // namespace TENUTO_NS
