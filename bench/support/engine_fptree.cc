// Tenuto's tree above an exchangeable allocator: the FPTree experiment of NVAlloc. The tree maps
// each key to the number of a destination. The record (key and value after an 8-byte head) is a
// block. It is allocated to that destination and freed from it, by tenuto's heap or by libpmemobj,
// each in a pool of its own. So these engines differ only in the allocator. Engine `tenuto` is the
// comparison: its records need no allocator log.
//
//   insert   allocate, write the record, flush, fence; put the destination's number
//   erase    look the number up; erase the key; free from the destination
//
// A destination is a word of the allocator's own kind, in its pool. Only this process knows which
// destinations are free. The engine is for measuring only: after reopening it must only read.
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "bench/alloc/allocator.h"
#include "bench/support/engine.h"
#include "bench/support/tenuto_medium.h"
#include "tenuto/kv.h"
#include "tenuto/persist.h"

namespace bench {
namespace {

using tenuto::Status;
using tenuto::Store;

struct BlockHead {
  std::uint64_t value_bytes;
};

// Shared by the sessions of one engine.
struct Shared {
  Store* store = nullptr;
  Allocator* records = nullptr;
  std::byte* words = nullptr;
  std::uint64_t words_max = 0;
  std::atomic<std::uint64_t> next_word{0};
  tenuto::WriteOptions write;

  void* word(std::uint64_t n) const { return words + n * records->word_bytes(); }
};

class FptreeSession final : public Session {
 public:
  explicit FptreeSession(Shared& shared) : s_(shared) {}

  bool read(std::string_view key, std::string_view& value) override {
    const std::optional<std::uint64_t> word = word_of(key);
    if (!word) return false;
    value = value_at(key, *word);
    return true;
  }
  void release() override { view_.reset(); }
  bool write(std::string_view key, std::string_view value) override {
    const std::optional<std::uint64_t> old = word_of(key);
    view_.reset();
    const std::optional<std::uint64_t> word = take_word();
    if (!word) return false;
    const std::uint64_t bytes = sizeof(BlockHead) + key.size() + value.size();
    auto* block = static_cast<char*>(s_.records->malloc_to(bytes, s_.word(*word)));
    if (block == nullptr) return false;
    const BlockHead head{value.size()};
    std::memcpy(block, &head, sizeof head);
    std::memcpy(block + sizeof head, key.data(), key.size());
    std::memcpy(block + sizeof head + key.size(), value.data(), value.size());
    tenuto::flush_bytes(block, bytes);
    tenuto::fence("record", "tree names it");
    const std::string_view number(reinterpret_cast<const char*>(&*word), sizeof *word);
    if (s_.store->put(key, number, s_.write) != Status::ok) return false;
    return !old || give_back(*old);
  }
  bool erase(std::string_view key) override {
    const std::optional<std::uint64_t> word = word_of(key);
    view_.reset();
    return word && s_.store->erase(key, s_.write) == Status::ok && give_back(*word);
  }
  std::uint64_t scan(std::string_view start, std::uint64_t count, Sink& sink) override {
    tenuto::Iterator at = s_.store->iterator();
    start.empty() ? at.seek_first() : at.seek(start);
    std::uint64_t taken = 0;
    for (; taken < count && at.valid(); at.next(), ++taken) {
      std::uint64_t word = 0;
      std::memcpy(&word, at.value().data(), sizeof word);
      sink.take(at.key(), value_at(at.key(), word));
    }
    return taken;
  }

 private:
  std::optional<std::uint64_t> word_of(std::string_view key) {
    tenuto::Result<tenuto::View> found = s_.store->view(key);
    if (!found) return std::nullopt;
    std::uint64_t word = 0;
    std::memcpy(&word, found->value().data(), sizeof word);
    view_.emplace(std::move(*found));
    return word;
  }
  std::string_view value_at(std::string_view key, std::uint64_t word) const {
    const auto* block = static_cast<const char*>(s_.records->follow(s_.word(word)));
    BlockHead head;
    std::memcpy(&head, block, sizeof head);
    return {block + sizeof head + key.size(), head.value_bytes};
  }
  std::optional<std::uint64_t> take_word() {
    if (!idle_.empty()) {
      const std::uint64_t word = idle_.back();
      idle_.pop_back();
      return word;
    }
    const std::uint64_t word = s_.next_word.fetch_add(1, std::memory_order_relaxed);
    if (word < s_.words_max) return word;
    return std::nullopt;
  }
  bool give_back(std::uint64_t word) {
    idle_.push_back(word);
    return s_.records->free_from(s_.word(word));
  }

  Shared& s_;
  std::vector<std::uint64_t> idle_;
  std::optional<tenuto::View> view_;
};

class FptreeEngine final : public Engine {
 public:
  explicit FptreeEngine(std::unique_ptr<Allocator> records) : records_(std::move(records)) {}

  bool open(const EngineOptions& options) override {
    tenuto::StoreOptions how;
    const std::optional<tenuto::Medium> medium = medium_of(options.medium);
    if (!medium) return refuse("no medium is called " + options.medium);
    how.pool.medium = *medium;
    how.order = options.integer_keys ? tenuto::KeyOrder::u64 : tenuto::KeyOrder::bytes;
    tenuto::Report report;
    tenuto::Result<Store> opened = Store::open(options.dir + "/store.tnt", how, &report);
    if (!opened) return refuse(report.text());
    store_.emplace(std::move(*opened));
    // An upper bound of the number of records: each holds at least its value.
    AllocatorOptions below;
    below.dir = options.dir;
    below.medium = this->medium();
    shared_.words_max = options.data_bytes / options.value_bytes + options.threads + 1;
    below.root_bytes = shared_.words_max * kWordBytesMax;
    below.live_bytes = 2 * options.data_bytes;
    if (!records_->open(below)) return refuse(records_->error());
    shared_.words = records_->root();
    if (shared_.words == nullptr) return refuse(records_->error());
    shared_.store = &*store_;
    shared_.records = records_.get();
    shared_.write = {options.sync ? tenuto::Durability::sync : tenuto::Durability::buffered};
    return true;
  }
  std::unique_ptr<Session> session() override { return std::make_unique<FptreeSession>(shared_); }
  bool close() override {
    const bool closed = store_->close() == Status::ok;
    store_.reset();
    return (records_->close() && closed) || refuse("close failed");
  }
  EngineCounters counters() override {
    if (medium() != "model") return {};
    const EngineCounters below = records_->counters();
    const tenuto::PoolStats pool = store_->stats().pool;
    if (below.lines_flushed < 0) return {};
    return {below.lines_flushed + static_cast<double>(pool.lines_flushed),
            below.fences + static_cast<double>(pool.fences),
            below.reflushes + static_cast<double>(pool.reflushes)};
  }
  std::string medium() override { return tenuto::medium_name(store_->pool().info().medium); }
  bool validate() override { return records_->validate() && store_->validate() == Status::ok; }

 private:
  static constexpr std::size_t kWordBytesMax = 16;

  bool refuse(std::string why) {
    error_ = std::move(why);
    return false;
  }

  std::unique_ptr<Allocator> records_;
  std::optional<Store> store_;
  Shared shared_;
};

std::string settings_of(const char* allocator, const EngineOptions& options) {
  return "medium " + options.medium + ", tenuto's tree of keys, each record a block of " +
         allocator;
}

}  // namespace

std::unique_ptr<Engine> make_fptree_tenuto() {
  return std::make_unique<FptreeEngine>(make_tenuto_logged());
}
std::unique_ptr<Engine> make_fptree_tenuto_versioned() {
  return std::make_unique<FptreeEngine>(make_tenuto_versioned());
}
#ifdef TENUTO_PEER_PMEMOBJ
std::unique_ptr<Engine> make_fptree_pmdk() {
  return std::make_unique<FptreeEngine>(make_pmdk_atomic());
}
#endif
std::string fptree_tenuto_settings(const EngineOptions& o) {
  return settings_of("tenuto's heap (malloc_to, free_from)", o);
}
std::string fptree_tenuto_versioned_settings(const EngineOptions& o) {
  return settings_of("tenuto's heap, versioned destinations", o);
}
std::string fptree_pmdk_settings(const EngineOptions& o) {
  return settings_of("libpmemobj (pmemobj_alloc, pmemobj_free)", o);
}

}  // namespace bench
