// A thread of a life: makes the steps that it is given, and records each call.
#pragma once

#include <functional>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "support/failing_memory.h"
#include "world.h"

namespace tenuto::life {

class Actor {
 public:
  Actor(World& world, unsigned thread)
      : world_(world),
        thread_(thread),
        owner_(world.story.at_once ? thread : 0),
        record_(world.shared, thread) {}

  void act(const Step& step, std::size_t number);
  bool room() const { return record_.room(); }
  void drop_views();

  // Looks at a store outside of steps, while no other thread is in a call (process_files.cc).
  // fresh: the store was opened just now.
  void look(unsigned s, std::size_t number, bool fresh);
  void keep_all(unsigned s, Store& store);
  // The contents of a look: {time, collections, clock}; for each collection {name, id, encoding,
  // records}; for each record {key, value, remaining lifetime}; then the objects.
  std::vector<std::uint64_t> seen_in(unsigned s, Store& store, bool keep, bool fresh);
  std::vector<std::uint64_t> seen_in_backup(unsigned n);
  Recorder& recorder() { return record_; }

  // After an open of a pool with Consistency::internal, while no other thread uses it.
  void reconcile_objects(Pool& pool);

 private:
  using Words = std::vector<std::uint64_t>;
  static constexpr std::uint64_t kNone = ~0ull;

  // Runs f, which returns a Status, with the failure that is due. Returns kThrew if f threw, and
  // says so (kRefused) if `full` is for want of memory.
  template <class F>
  std::uint64_t call(F&& f) {
    test::fail_allocation(fail_alloc_);
    std::uint64_t status = kThrew;
    try {
      status = static_cast<std::uint64_t>(f());
    } catch (const std::bad_alloc&) {
    }
    fail_alloc_ = test::allocations_left();
    const bool failed = test::failed_allocation();
    const bool full = status == static_cast<std::uint64_t>(Status::full);
    return failed && full ? status | kRefused : status;
  }
  void begin(const Words& arguments) { record_.begin(verb_, number_, store_, arguments); }
  void end(std::uint64_t status, const Words& results = {}) { record_.end(status, results); }

  std::shared_ptr<Store> store_of(std::int64_t s);
  // Gets the collection of a slot, for use with this store. Returns false if the slot is empty.
  bool collection_of(unsigned s, std::int64_t c, Collection& collection);
  bool collection_in(const TransactionSlot& x, std::int64_t c, Collection& collection);
  Collection opened(Store& store, const std::string& name);
  void keep_collection(unsigned s, std::int64_t c, const Collection& collection);
  static Encoding encoding_of(const Collection& c);
  static bool numbers(const Collection& c) { return encoding_of(c).numbers(); }
  static std::string text(const Collection& c, std::int64_t key) {
    return key_text(numbers(c), clip(key));
  }
  static std::uint64_t clip(std::int64_t key) { return static_cast<std::uint64_t>(key) % kKeys; }
  std::uint64_t new_tag(const Collection& c, std::int64_t bytes);
  static std::uint64_t pair_tag(std::int64_t value);
  std::uint64_t seen_tag(std::string_view value);
  std::uint64_t seen_key(bool numbers, std::string_view key);
  // A store's own calls are those of its default collection. This tries both ways.
  template <class C, class F>
  auto through(C& c, F&& f) {
    return by_itself(c) ? f(*world_.store[store_].store) : f(c);
  }
  bool by_itself(const Collection& c) const { return c.id() == 0 && number_ % 2 == 1; }
  static WriteOptions how(std::int64_t buffered, std::int64_t ttl = 0);

  // act_data.cc
  bool data(const Step& s);
  void put(const Step& s, Collection& c);
  void compare_and_swap(const Step& s, Collection& c);
  void merge(const Step& s, Collection& c);
  void erase_range(const Step& s, Collection& c);
  void many(const Step& s, Collection& c);
  void bulk(const Step& s, Collection& c);
  void batch(const Step& s);
  // act_reads.cc
  bool reads(const Step& s);
  void point(const Step& s, const Collection& c);
  void multi_get(const Step& s, const Collection& c);
  void neighbour(const Step& s, const Collection& c);
  void figure(const Step& s, const Collection& c);
  void hold_view(const Step& s, const Collection& c);
  void scan(Iterator it, bool numbers, bool backward, Status& status, Words& results);
  // act_snapshots.cc
  bool moments(const Step& s);
  void take_snapshot(const Step& s);
  void snapshot_read(const Step& s);
  bool transactions(const Step& s);
  void begin_transaction(const Step& s);
  void transaction_read(const Step& s, TransactionSlot& x);
  void transaction_write(const Step& s, TransactionSlot& x);
  void transaction_create(const Step& s, TransactionSlot& x);
  void transaction_end(const Step& s, TransactionSlot& x);
  void run(const Step& s);
  // act_cursors.cc
  bool cursors(const Step& s);
  void open_cursor(const Step& s);
  void move_cursor(const Step& s, CursorSlot& slot);
  // act_store.cc
  bool collections(const Step& s);
  bool upkeep(const Step& s);
  void create(const Step& s);
  void list(const Step& s);
  bool objects(const Step& s);
  bool mine(std::uint64_t slot) const {
    return !world_.story.at_once || slot % kThreadsMax == thread_;
  }
  Words slots_from(const RootObject& root, std::int64_t first, std::int64_t count, bool full) const;
  void object_new(Pool& pool, RootObject& root, const Step& s);
  void object_publish(Pool& pool, RootObject& root, const Step& s);
  void object_fill(Pool& pool, RootObject& root, const Step& s);
  void object_free(Pool& pool, RootObject& root, const Step& s);
  void object_resize(Pool& pool, RootObject& root, const Step& s);
  void object_swap(Pool& pool, RootObject& root, const Step& s);
  void object_tx(Pool& pool, RootObject& root, const Step& s);
  // The transaction over objects, in one pool or, with Story::side, over two.
  Status run_over(Pool& pool, const Words& words, const std::function<Status(Transaction&)>& body);
  Status stamp_side(Transaction& tx, SideRoot& side, const Words& words);
  Status change_objects(Transaction& tx, RootObject& root, const Step& s, const Words& words);
  void object_walk(Pool& pool, RootObject& root, const Step& s);
  void look_at_objects(Pool& pool, bool fresh, Words& words);

  World& world_;
  const unsigned thread_, owner_;
  Recorder record_;
  // Of the step that runs.
  Verb verb_{};
  std::size_t number_ = 0;
  unsigned store_ = 0;
  long fail_alloc_ = 0;
};

}  // namespace tenuto::life
