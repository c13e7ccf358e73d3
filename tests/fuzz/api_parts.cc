// The cursors and transactions of fuzz_api.cc, beside their models.
#include <algorithm>
#include <cstring>

#include "fuzz/api_world.h"
#include "fuzz/input.h"

namespace tenuto::fuzz {

ApiCursor::ApiCursor(ApiWorld& world, const IteratorOptions& options)
    : it_(world.store().iterator(options)) {
  for (const auto& [k, v] : world.records()) {
    const bool inside = k.starts_with(options.prefix) && (!options.lower || k >= *options.lower) &&
                        (!options.upper || k < *options.upper);
    if (inside) in_bounds_.emplace_back(k, v);
  }
  FUZZ_REQUIRE(!it_.valid(), "a new iterator has a position");
}

void ApiCursor::move(unsigned which, const std::string& key) {
  const std::size_t n = in_bounds_.size();
  const auto first_from = [&] {
    const auto it = std::partition_point(in_bounds_.begin(), in_bounds_.end(),
                                         [&](const auto& r) { return r.first < key; });
    return static_cast<std::size_t>(it - in_bounds_.begin());
  };
  const auto set = [&](bool there, std::size_t at) {
    at_ = there ? std::optional(at) : std::nullopt;
  };
  switch (which) {
    case 0:
      it_.seek_first();
      set(n != 0, 0);
      break;
    case 1:
      it_.seek_last();
      set(n != 0, n - 1);
      break;
    case 2: {
      it_.seek(key);
      const std::size_t at = first_from();
      set(at < n, at);
      break;
    }
    case 3: {
      it_.seek_for_prev(key);
      std::size_t end = first_from();
      if (end < n && in_bounds_[end].first == key) end += 1;
      set(end != 0, end - 1);
      break;
    }
    case 4:
    case 5:
      if (!at_) return;
      it_.next();
      set(*at_ + 1 < n, *at_ + 1);
      break;
    default:
      if (!at_) return;
      it_.prev();
      set(*at_ != 0, *at_ - 1);
  }
  expect_same();
}

void ApiCursor::expect_same() const {
  FUZZ_REQUIRE(it_.status() == Status::ok, "status of an iterator");
  FUZZ_REQUIRE(it_.valid() == at_.has_value(), "an iterator's end");
  if (!at_) return;
  FUZZ_REQUIRE(it_.key() == in_bounds_[*at_].first, "an iterator's key");
  FUZZ_REQUIRE(it_.value() == in_bounds_[*at_].second, "an iterator's value");
}

ApiTransaction::ApiTransaction(ApiWorld& world)
    : world_(world), after_(world.objects()), before_(world.objects()), tx_(world.store().pool()) {
  FUZZ_REQUIRE(tx_.status() == Status::ok, "a transaction does not begin");
}

void ApiTransaction::store_numbers(std::size_t at, std::size_t count, unsigned value) {
  if (!active()) return;
  at %= ApiWorld::kNumbers;
  count = std::min(count, ApiWorld::kNumbers - at);
  std::uint64_t* numbers = &world_.root().number[at];
  const bool later = value % 2 != 0;
  const std::size_t bytes = count * sizeof *numbers;
  Status s = later ? tx_.add_later(numbers, bytes) : tx_.add(numbers, bytes);
  if (later && s == Status::ok) s = tx_.ready();
  if (!world_.done_or_full(s, 2 * bytes, "add")) return;
  std::fill_n(numbers, count, value);
  std::fill_n(&after_.number[at], count, value);
}

void ApiTransaction::alloc(std::size_t slot, std::uint64_t bytes) {
  if (!active() || after_.block[slot].bytes != 0) return;
  Ptr<char>& word = world_.root().word[slot];
  if (!world_.done_or_full(tx_.add(word), 64, "add")) return;
  auto block = tx_.alloc(bytes);
  if (!world_.done_or_full(block ? Status::ok : block.error(), bytes, "alloc")) return;
  word = static_cast<char*>(*block);
  const char c = world_.next_fill();
  std::memset(*block, c, bytes);
  after_.block[slot] = {bytes, c};
}

void ApiTransaction::free(std::size_t slot) {
  if (!active() || after_.block[slot].bytes == 0) return;
  Ptr<char>& word = world_.root().word[slot];
  if (!world_.done_or_full(tx_.add(word), 64, "add")) return;
  char* block = word.get();
  if (!world_.done_or_full(tx_.free(block), 64, "free")) return;
  FUZZ_REQUIRE(tx_.free(block) == Status::invalid_argument, "free twice");
  word = static_cast<char*>(nullptr);
  after_.block[slot] = {};
}

void ApiTransaction::nest(unsigned how) {
  if (!active()) return;
  Transaction inner(world_.store().pool());
  FUZZ_REQUIRE(inner.status() == Status::ok, "an inner transaction does not begin");
  if (how % 4 != 0) {
    FUZZ_REQUIRE(inner.commit() == Status::ok, "an inner commit");
    return;
  }
  inner.abort();
  rolled_back_ = true;
  FUZZ_REQUIRE(tx_.status() == Status::aborted, "an inner abort");
  world_.expect_blocks();
}

void ApiTransaction::refused() {
  if (!active()) return;
  WriteBatch batch;
  batch.put(world_.key(1, 1), "x");
  FUZZ_REQUIRE(world_.store().write(batch) == Status::invalid_argument,
               "a batch inside a transaction");
  FUZZ_REQUIRE(world_.store().close() == Status::busy, "a close inside a transaction");
  std::uint64_t outside = 0;
  FUZZ_REQUIRE(tx_.add(outside) == Status::invalid_argument, "add outside the pool");
  FUZZ_REQUIRE(tx_.free(&world_.root().number[1]) == Status::invalid_argument,
               "free of an inner place");
}

void ApiTransaction::remember_crash() {
  if (!active() || crashed_) return;
  crashed_ = world_.image();
  records_at_crash_ = world_.records();
}

void ApiTransaction::commit() {
  ended_ = true;
  const Status s = tx_.commit();
  if (rolled_back_) {
    FUZZ_REQUIRE(s == Status::aborted, "commit after an inner abort");
    return;
  }
  FUZZ_REQUIRE(s == Status::ok, std::string("commit: ") + status_name(s));
  world_.objects() = after_;
  world_.expect_blocks();
}

void ApiTransaction::abort() {
  ended_ = true;
  tx_.abort();
  FUZZ_REQUIRE(tx_.commit() != Status::ok, "commit after an abort");
  world_.expect_blocks();
}

void ApiTransaction::crash_if_remembered() {
  if (!crashed_) return;
  world_.reopen_at(*crashed_, before_, records_at_crash_);
}

}  // namespace tenuto::fuzz
