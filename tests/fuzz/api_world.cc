#include "fuzz/api_world.h"

#include <algorithm>
#include <cstring>

#include "fuzz/input.h"

namespace tenuto::fuzz {

namespace {

// With fewer bytes in use a pool of kPoolBytesMax must not return full, however fragmented it is.
constexpr std::uint64_t kNeverFullBytes = 1u << 20;

WorkFile& file(std::size_t i) {
  static WorkFile files[2] = {WorkFile(kPoolBytesMax), WorkFile(kPoolBytesMax)};
  return files[i];
}

bool all_are(const void* p, std::uint64_t bytes, char c) {
  const std::string_view text(static_cast<const char*>(p), bytes);
  return text.find_first_not_of(c) == std::string_view::npos;
}

}  // namespace

ApiWorld::ApiWorld(KeyOrder order) : order_(order) {
  file(0).load(base(order == KeyOrder::u64 ? BaseName::empty_u64 : BaseName::empty).image);
  open();
}

ApiWorld::~ApiWorld() { close(); }

Image ApiWorld::image() const { return file(now_).image(); }

std::string ApiWorld::key(unsigned n, unsigned form) const {
  if (order_ == KeyOrder::u64) {
    const std::uint64_t number = form < 128 ? n : std::uint64_t{n} << (form % 8 * 8);
    return std::string(std::string_view(u64_key(number)));
  }
  const std::string middle(1, static_cast<char>(n));
  if (form < 0x60) return "k" + middle;
  if (form < 0x80) return std::string(n % 4, '\0');
  if (form < 0xc0) return std::string("a prefix that is in many keys/") + middle;
  if (form < 0xf0) return std::string(20 + n, 'p') + middle;
  if (form < 0xff) return middle + std::string(n * 16, 'q') + middle;
  return std::string(kKeyBytesMax, static_cast<char>('a' + n % 3));
}

std::uint64_t ApiWorld::used_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [k, v] : records_) bytes += k.size() + v.size() + 64;
  for (const ModelBlock& b : objects_.block) bytes += b.bytes;
  for (const Reserved& r : reserved_) bytes += r.bytes;
  return bytes;
}

bool ApiWorld::done_or_full(Status s, std::uint64_t bytes, const char* what) {
  if (s == Status::ok) return true;
  FUZZ_REQUIRE(s == Status::full, std::string(what) + ": " + status_name(s));
  // A held iterator keeps replaced records, so any call may return full then.
  FUZZ_REQUIRE(
      held_ || used_bytes() + bytes > kNeverFullBytes,
      std::string(what) + ": full, with " + std::to_string(used_bytes()) + " bytes in use");
  return false;
}

void ApiWorld::put(const std::string& key, const std::string& value, WriteOptions options) {
  const Status s = store_->put(key, value, options);
  if (done_or_full(s, key.size() + value.size(), "put")) records_[key] = value;
  expect_key(key);
}

void ApiWorld::erase(const std::string& key) {
  const Status s = store_->erase(key);
  const bool was = records_.erase(key) != 0;
  FUZZ_REQUIRE(s == (was ? Status::ok : Status::not_found),
               std::string("erase: ") + status_name(s));
  expect_key(key);
}

void ApiWorld::write(const std::vector<BatchEntry>& entries, WriteOptions options) {
  WriteBatch batch;
  std::uint64_t bytes = 0;
  for (const BatchEntry& e : entries) {
    e.erase ? batch.erase(e.key) : batch.put(e.key, e.value);
    bytes += e.key.size() + e.value.size();
  }
  FUZZ_REQUIRE(batch.count() == entries.size(), "count of a batch");
  const Status s = store_->write(batch, options);
  if (done_or_full(s, 2 * bytes, "write")) {
    for (const BatchEntry& e : entries) {
      if (e.erase) {
        records_.erase(e.key);
      } else {
        records_[e.key] = e.value;
      }
    }
  }
  for (const BatchEntry& e : entries) expect_key(e.key);
}

void ApiWorld::expect_key(const std::string& key) {
  static std::string value;
  const auto it = records_.find(key);
  const Status there = it != records_.end() ? Status::ok : Status::not_found;
  const Status s = store_->get(key, value);
  FUZZ_REQUIRE(s == there, std::string("get: ") + status_name(s));
  FUZZ_REQUIRE(s != Status::ok || value == it->second, "get: another value");
  FUZZ_REQUIRE(store_->contains(key) == there, "contains");
}

void ApiWorld::expect_view(const std::string& key) {
  const auto it = records_.find(key);
  const Result<View> view = store_->view(key);
  FUZZ_REQUIRE(view.has_value() == (it != records_.end()), "view");
  FUZZ_REQUIRE(!view || view->value() == it->second, "view: another value");
}

void ApiWorld::hold_iterator(const std::string& key) {
  held_.emplace(store_->iterator());
  held_->seek(key);
  const auto it = records_.lower_bound(key);
  FUZZ_REQUIRE(held_->valid() == (it != records_.end()), "seek");
  if (!held_->valid()) return held_.reset();
  FUZZ_REQUIRE(held_->key() == it->first && held_->value() == it->second, "seek: another record");
  held_key_ = it->first;
}

void ApiWorld::move_held() {
  if (!held_) return;
  FUZZ_REQUIRE(held_->key() == held_key_, "an iterator's key changed under it");
  held_->next();
  FUZZ_REQUIRE(held_->status() == Status::ok, "status of an iterator");
  if (!held_->valid()) return held_.reset();
  FUZZ_REQUIRE(held_key_ < held_->key(), "an iterator went back");
  held_key_ = held_->key();
}

void ApiWorld::fill_block(std::size_t slot, void* block, std::uint64_t bytes) {
  const char c = next_fill();
  std::memset(block, c, bytes);
  flush_bytes(block, bytes);
  fence("a block's contents", "the model knows them");
  objects_.block[slot] = {bytes, c};
}

void ApiWorld::malloc_to(std::size_t slot, std::uint64_t bytes) {
  const Status s = store_->pool().malloc_to(bytes, root_->word[slot].word());
  if (objects_.block[slot].bytes != 0) {
    FUZZ_REQUIRE(s == Status::invalid_argument, "malloc_to where a block is");
    return;
  }
  if (!done_or_full(s, bytes, "malloc_to")) {
    FUZZ_REQUIRE(!root_->word[slot], "malloc_to without room attached something");
    return;
  }
  char* block = root_->word[slot].get();
  FUZZ_REQUIRE(store_->pool().usable_size(block) >= bytes, "usable_size");
  FUZZ_REQUIRE(store_->pool().at(store_->pool().offset_of(block)) == block, "offset_of and at");
  fill_block(slot, block, bytes);
}

void ApiWorld::free_from(std::size_t slot) {
  ModelBlock& b = objects_.block[slot];
  if (b.bytes != 0) {
    FUZZ_REQUIRE(all_are(root_->word[slot].get(), b.bytes, b.fill), "a block's bytes changed");
  }
  const Status s = store_->pool().free_from(root_->word[slot]);
  FUZZ_REQUIRE(s == (b.bytes != 0 ? Status::ok : Status::invalid_argument),
               std::string("free_from: ") + status_name(s));
  FUZZ_REQUIRE(!root_->word[slot], "free_from left its word");
  b = {};
}

void ApiWorld::reserve(std::uint64_t bytes) {
  if (reserved_.size() == 4) return;
  auto block = store_->pool().reserve(bytes);
  if (!done_or_full(block ? Status::ok : block.error(), bytes, "reserve")) return;
  FUZZ_REQUIRE(block->bytes >= bytes && block->data != nullptr, "reserve");
  FUZZ_REQUIRE(store_->pool().usable_size(block->data) == 0, "a reserved block is allocated");
  std::memset(block->data, 'r', block->bytes);
  reserved_.push_back(*block);
}

void ApiWorld::publish(std::size_t slot) {
  if (reserved_.empty()) return;
  const Reserved block = reserved_.back();
  const Status s = store_->pool().publish(block, root_->word[slot].word());
  if (objects_.block[slot].bytes != 0) {
    FUZZ_REQUIRE(s == Status::invalid_argument, "publish where a block is");
    return;
  }
  FUZZ_REQUIRE(s == Status::ok, std::string("publish: ") + status_name(s));
  reserved_.pop_back();
  FUZZ_REQUIRE(root_->word[slot].get() == block.data, "publish: another block");
  FUZZ_REQUIRE(store_->pool().cancel(block) == Status::invalid_argument, "cancel after publish");
  fill_block(slot, block.data, block.bytes);
}

void ApiWorld::cancel() {
  if (reserved_.empty()) return;
  FUZZ_REQUIRE(store_->pool().cancel(reserved_.back()) == Status::ok, "cancel");
  FUZZ_REQUIRE(store_->pool().cancel(reserved_.back()) == Status::invalid_argument, "cancel twice");
  reserved_.pop_back();
}

void ApiWorld::misuse(unsigned which) {
  Pool& pool = store_->pool();
  const auto refused = [](Status s, Status why, const char* what) {
    FUZZ_REQUIRE(s == why, std::string(what) + ": " + status_name(s));
  };
  const std::size_t slot = which / 8 % kSlots;
  switch (which % 8) {
    case 0: {
      const std::string large(kKeyBytesMax + 1, 'x');
      const Status why = Status::too_large;
      refused(store_->put(large, "v"), why, "put of a large key");
      refused(store_->contains(large), why, "contains of a large key");
      break;
    }
    case 1:
      if (order_ != KeyOrder::u64) break;
      refused(store_->put("short", "v"), Status::invalid_argument, "put of no number");
      break;
    case 2: {
      PtrWord outside;
      refused(pool.malloc_to(100, outside), Status::invalid_argument, "malloc_to outside");
      refused(pool.free_from(outside), Status::invalid_argument, "free_from outside");
      break;
    }
    case 3: {
      if (objects_.block[slot].bytes < 64) break;
      // A pointer into the middle of a block, in a word that is no destination.
      auto& word = reinterpret_cast<Ptr<char>&>(root_->number[kNumbers - 1]);
      word = root_->word[slot].get() + 16;
      refused(pool.free_from(word), Status::invalid_argument, "free_from of an inner place");
      FUZZ_REQUIRE(pool.usable_size(word.get()) == 0, "usable_size of an inner place");
      word = static_cast<char*>(nullptr);
      root_->number[kNumbers - 1] = objects_.number[kNumbers - 1];
      break;
    }
    case 4: {
      Report report;
      const auto again = Store::open(file(now_).path(), pool_options(), &report);
      refused(again ? Status::ok : again.error(), Status::busy, "a second open");
      break;
    }
    case 5: {
      const auto other = pool.root<std::uint64_t>("other");
      refused(other ? Status::ok : other.error(), Status::invalid_argument, "another root");
      break;
    }
    case 6:
      refused(pool.malloc_to(1ull << 40, root_->word[slot].word()),
              objects_.block[slot].bytes != 0 ? Status::invalid_argument : Status::too_large,
              "malloc_to of a terabyte");
      break;
    default: {
      Iterator none = store_->iterator({.prefix = {}, .lower = "b", .upper = "a"});
      none.seek_first();
      FUZZ_REQUIRE(!none.valid() && none.status() == Status::ok, "an iterator over nothing");
    }
  }
}

void ApiWorld::expect_counts() {
  const StoreStats stats = store_->stats();
  std::uint64_t bytes = 0;
  for (const auto& [k, v] : records_) bytes += k.size() + v.size();
  FUZZ_REQUIRE(stats.records == records_.size(), "count of records");
  FUZZ_REQUIRE(stats.record_bytes == bytes, "count of record bytes");
}

void ApiWorld::expect_valid() {
  Report report;
  FUZZ_REQUIRE(store_->validate(&report) == Status::ok, report.text());
}

void ApiWorld::expect_blocks() {
  for (std::size_t i = 0; i < kSlots; ++i) {
    const ModelBlock& b = objects_.block[i];
    FUZZ_REQUIRE(static_cast<bool>(root_->word[i]) == (b.bytes != 0), "a word of the root object");
    if (b.bytes == 0) continue;
    FUZZ_REQUIRE(store_->pool().usable_size(root_->word[i].get()) >= b.bytes, "usable_size");
    FUZZ_REQUIRE(all_are(root_->word[i].get(), b.bytes, b.fill), "bytes of a block");
  }
  FUZZ_REQUIRE(std::equal(std::begin(objects_.number), std::end(objects_.number), root_->number),
               "numbers of the root object");
}

void ApiWorld::expect_all() {
  expect_valid();
  expect_counts();
  expect_blocks();
  Iterator it = store_->iterator();
  it.seek_first();
  for (const auto& [k, v] : records_) {
    FUZZ_REQUIRE(it.valid() && it.key() == k && it.value() == v, "a record, in order");
    it.next();
  }
  FUZZ_REQUIRE(!it.valid() && it.status() == Status::ok, "more records than the model has");
}

void ApiWorld::open() {
  Report report;
  auto opened = Store::open(file(now_).path(), pool_options(), &report);
  FUZZ_REQUIRE(opened, report.text());
  store_.emplace(std::move(*opened));
  FUZZ_REQUIRE(store_->order() == order_, "order of keys");
  auto root = store_->pool().root<Root>("fuzz", &report);
  FUZZ_REQUIRE(root, report.text());
  root_ = *root;
}

void ApiWorld::close() {
  held_.reset();
  reserved_.clear();
  const Status s = store_->close();
  FUZZ_REQUIRE(s == Status::ok, std::string("close: ") + status_name(s));
  store_.reset();
}

void ApiWorld::reopen(bool crash) {
  if (crash) return reopen_at(image(), objects_, records_);
  close();
  open();
  expect_all();
  // A clean close also frees reserved blocks.
  std::uint64_t blocks = 1;
  for (const ModelBlock& b : objects_.block) blocks += b.bytes != 0 ? 1 : 0;
  FUZZ_REQUIRE(store_->pool().stats().objects == blocks, "count of objects");
}

void ApiWorld::reopen_at(const Image& crashed, const Objects& objects, const Records& records) {
  const Objects objects_then = objects;  // a copy, because it may be our own
  const Records records_then = records;
  close();
  now_ = 1 - now_;
  file(now_).load(crashed);
  objects_ = objects_then;
  records_ = records_then;
  open();
  FUZZ_REQUIRE(!store_->pool().info().was_clean, "a crash was not noticed");
  expect_all();
}

}  // namespace tenuto::fuzz
