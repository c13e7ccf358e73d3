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

#include "heap/readings.h"
#include "pm/metadata_key.h"
#include "pm/no_memory.h"
#include "pm/plant.h"
#include "store/pool/object_reading.h"
#include "tenuto/pool.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

namespace {

constexpr std::size_t kMovedAtOnce = 128;
using Link = heap::Heap::Links::Link;

struct Object {
  PoolOffset at;
  std::uint64_t block_bytes = 0;
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
    if (!o.root_filter) options_.root_filter = pool.root_filter;
    for (const auto& [type, filter] : pool.filters) options_.filters.try_emplace(type, filter);
    for (const auto& [type, how] : o.types) options_.filters[type] = how.references;
  }
  bool there() const { return readings_.there() && sparse_.there() && fixed_.there(); }

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
      if (!readings_.reached.has(o) && heap.type_of(o) != 0) from.push_back(o);
    });
    if (!TENUTO_PLANT("store_compact_objects_beside_walks_by_type")) reach(from);
    from.clear();
    // Nobody knows who reads the others, or publishes them.
    heap.for_each(heap::Kind::logged, [&](PoolOffset o, std::uint64_t bytes) {
      if (!readings_.reached.has(o)) from.push_back(o);
      if (!sparse_.has(heap::Heap::slab_at(o))) return;
      objects.push_back({o, bytes, heap.usable({o, bytes}), heap.type_of(o)});
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
    pool_.heap->reach(from, options_, readings_, reached_, &links_);
  }

  PoolImpl& pool_;
  GarbageOptions options_;
  heap::Readings readings_{pool_.file->bytes()};
  heap::BlockMarks sparse_{pool_.file->bytes()};
  heap::BlockMarks fixed_{pool_.file->bytes()};
  heap::Heap::Links links_{sparse_, fixed_};
  heap::Heap::Reached reached_;
};

// Moves the objects of a trace.
class Moves {
 public:
  using Told = PoolImpl::MovedObject;
  Moves(Pool& pool, PoolImpl& impl, const CompactObjectsOptions& options, const Trace& trace,
        std::vector<Object> objects, std::vector<Told>& told)
      : pool_(pool),
        impl_(impl),
        options_(options),
        trace_(trace),
        objects_(std::move(objects)),
        told_(told) {
    told_.reserve(objects_.size());
  }

  // full: the rest stays where it is.
  Status run(CompactObjectsStats& done, Report* report) {
    std::size_t at_once = kMovedAtOnce;
    unsigned skipped = 0;
    for (std::size_t i = 0; i < objects_.size();) {
      const std::span<Object> some(&objects_[i], std::min(at_once, objects_.size() - i));
      words_ = 0;
      log_full_ = false;
      const Status s = move(some, report);
      at_once = s == Status::ok ? kMovedAtOnce : std::max<std::size_t>(1, some.size() / 2);
      if (s == Status::ok) {
        i += some.size();
        skipped = 0;
        done.objects_moved += some.size();
        done.words_changed += words_;
        tell(some);
        continue;
      }
      // A commit that could not be made durable has moved them all the same.
      if (s == Status::io && !impl_.heap->find_allocated(some[0].at)) tell(some);
      for (Object& o : some) o.to = {};
      if (s != Status::full || !log_full_ || skipped == kSkippedMax) return s;
      if (some.size() > 1) continue;
      // All that leads to this one is more than the log has room for.
      i += 1;
      skipped += 1;
      done.objects_fixed += 1;
      done.one_fixed = address(some[0].at);
    }
    return skipped == 0 ? Status::ok : Status::full;
  }

 private:
  static constexpr unsigned kSkippedMax = 16;  // one after the other: the pool is full

  void tell(std::span<const Object> some) {
    for (const Object& o : some) told_.push_back({address(o.at), address(o.to)});
  }
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
    log_full_ = true;  // what is full from here on
    for (const Object& o : some) {
      for (const Link& link : trace_.words_to(o)) {
        if (TENUTO_PLANT("store_compact_objects_word_not_logged")) continue;
        TENUTO_TRY(tx.add_later(place_of(link.word), sizeof(PtrWord)));
      }
    }
    TENUTO_TRY(tx.ready());
    for (const Object& o : some) TENUTO_TRY(make_anew(o, report));
    for (const Object& o : some) lead_to(o);
    for (const Object& o : some) {
      if (TENUTO_PLANT("store_compact_objects_old_one_kept")) continue;
      TENUTO_TRY(tx.free(address(o.at)));
    }
    return tx.commit(Durability::buffered);
  }
  // invalid_argument: the new object does not lead where the old one does.
  Status make_anew(const Object& o, Report* report) const {
    const Movable& how = options_.types.at(o.type);
    if (TENUTO_PLANT("store_compact_objects_copies_bytes")) {
      std::memcpy(address(o.to), address(o.at), o.bytes);
      return Status::ok;
    }
    how.move(address(o.to), address(o.at), o.bytes);
    const ObjectReading before(impl_, how.references, address(o.at), o.bytes);
    const ObjectReading after(impl_, how.references, address(o.to), o.bytes);
    const auto same = [&](const void* to, const void* from) {
      return to == from || (is_in(o, from) && to == moved(o, from));
    };
    const bool all = std::equal(after.targets.begin(), after.targets.end(), before.targets.begin(),
                                before.targets.end(), same);
    if (all) return Status::ok;
    return fail(Status::invalid_argument, report,
                "Movable::move of type " + std::to_string(o.type) +
                    " made an object that leads elsewhere: each pointer must lead where it led",
                impl_.file->where(o.at, "an object"), std::to_string(before.targets.size()),
                std::to_string(after.targets.size()) + " pointers");
  }
  bool is_in(const Object& o, const void* p) const {
    const auto* const begin = static_cast<const std::byte*>(address(o.at));
    return p >= begin && p < begin + o.block_bytes;
  }
  const void* moved(const Object& o, const void* p) const {
    const std::ptrdiff_t inside =
        static_cast<const std::byte*>(p) - static_cast<const std::byte*>(address(o.at));
    return static_cast<const std::byte*>(address(o.to)) + inside;
  }
  // Lets all words that led to the object lead to its new place. One in the object itself may do
  // so.
  void lead_to(const Object& o) {
    for (const Link& link : trace_.words_to(o)) {
      auto& word = *static_cast<PtrWord*>(place_of(link.word));
      const void* const target = PtrWord::decode(&word, word.raw);
      if (!is_in(o, target)) continue;
      const void* const to =
          TENUTO_PLANT("store_compact_objects_begins_only") ? address(o.to) : moved(o, target);
      store_ordered(word.raw, PtrWord::encode(&word, to));
      words_ += 1;
    }
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
  std::vector<Told>& told_;
  std::uint64_t words_ = 0;  // that the transaction under way has changed
  bool log_full_ = false;
};

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
};

// Whether all is known of an object that nothing fixes.
bool is_known(const PoolImpl& pool, const Movable& how, const Object& o) {
  if (o.bytes < how.object_bytes) return false;
  const auto* const object = pool.file->at<std::byte>(o.at);
  ObjectReading reading(pool, how.references, object, o.bytes);
  if (how.object_bytes != 0) {
    const std::uint64_t told = round_up(how.object_bytes, sizeof(std::uint64_t));
    if (told < o.bytes) reading.read_words(object + told, o.bytes - told);
  }
  return !reading.doubtful || TENUTO_PLANT("store_compact_objects_in_doubt");
}

}  // namespace

Status PoolImpl::move_objects(Pool& tx_pool, const CompactObjectsOptions& options,
                              CompactObjectsStats& done, std::vector<MovedObject>& told,
                              Report* report) {
  Evacuating evacuating{*this, options};
  TENUTO_TRY(heap->was_read(report));
  heap->empty_all_caches();  // so that each choice sees the same slabs
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
    const auto how = options.types.find(o.type);
    const bool named = how != options.types.end();
    if (named && !trace.fixed(o) && is_known(*this, how->second, o)) {
      leaving.push_back(o);
      continue;
    }
    stay.push_back(o.at);
    if (!named) continue;
    done.objects_fixed += 1;
    done.one_fixed = file->at<void>(o.at);
  }
  const heap::Evacuation chosen = evacuating.begin(stay);
  std::erase_if(leaving, [this](const Object& o) { return !heap->leaving(o.at); });
  const Status s =
      Moves(tx_pool, *this, options, trace, std::move(leaving), told).run(done, report);
  const std::uint64_t left = evacuating.end();
  done.slabs_emptied = chosen.slabs - left;
  done.complete = s == Status::ok && chosen.all && left == 0;
  if (s == Status::ok || s == Status::full) return Status::ok;  // incomplete, but sound
  if (s == Status::invalid_argument) return s;
  return file->failed(s, report, "not all objects are moved", file->path());
}

Status PoolImpl::compact_objects(Pool& tx_pool, const CompactObjectsOptions& options,
                                 CompactObjectsStats& done, std::vector<MovedObject>& told,
                                 Report* report) {
  PoolStore::Standstill still;
  if (store != nullptr) still = store->stand_still();
  if (const Status s = engine->drain(); s != Status::ok) {
    return fail(s, report, "an object transaction is open: end it first", file->path());
  }
  done.bytes_before = file->bytes_on_disk();
  TENUTO_TRY(move_objects(tx_pool, options, done, told, report));
  heap->trim();
  TENUTO_TRY(acknowledge(durability));
  TENUTO_TRY(file->bad_pages(report));
  done.bytes_after = file->bytes_on_disk();
  return Status::ok;
}

Result<CompactObjectsStats> Pool::compact(const CompactObjectsOptions& options, Report* report) {
  if (impl_ == nullptr) return Status::closed;
  TENUTO_TRY(impl_->usable());
  TENUTO_TRY(check(options, report));
  TENUTO_TRY(impl_->file->writable(report));
  CompactObjectsStats done;
  std::vector<PoolImpl::MovedObject> told;
  Status s = Status::ok;
  const bool had_memory =
      pm::had_memory([&] { s = impl_->compact_objects(*this, options, done, told, report); });
  // Nothing is held any more, so this function may call the pool.
  if (options.moved) {
    for (const PoolImpl::MovedObject& object : told) options.moved(object.from, object.to);
  }
  if (!had_memory) pm::throw_bad_alloc();
  TENUTO_TRY(s);
  return done;
}

}  // namespace TENUTO_NS
