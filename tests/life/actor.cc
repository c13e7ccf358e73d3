// Turns steps into calls: what all kinds of steps share.
#include "actor.h"

#include <algorithm>

#include "support/failing_calls.h"

namespace tenuto::life {

void Actor::act(const Step& step, std::size_t number) {
  verb_ = step.verb;
  number_ = number;
  store_ = 0;
  Shared& shared = world_.shared;
  shared.step[thread_].store(static_cast<std::uint32_t>(number) + 1, std::memory_order_relaxed);
  if (step.verb == Verb::fail_alloc) {
    fail_alloc_ = static_cast<int>(step.a[0]);
    begin({});  // recorded, because the judge must know what may fail
    end(0);
  } else if (step.verb == Verb::fail_call) {
    static constexpr int kErrors[] = {5 /* EIO */, 28 /* ENOSPC */, 12 /* ENOMEM */};
    world_.calls_fail.store(true);
    begin({});
    end(0);
    test::fail_call_anywhere(static_cast<int>(step.a[0]), kErrors[step.a[1] % 3], step.a[2] != 0);
  } else {
    data(step) || reads(step) || moments(step) || transactions(step) || cursors(step) ||
        collections(step) || upkeep(step) || objects(step);
  }
  shared.step[thread_].store(0, std::memory_order_relaxed);
}

std::shared_ptr<Store> Actor::store_of(std::int64_t s) {
  store_ = static_cast<unsigned>(s) % kStores;
  return world_.store[store_].store;
}

Encoding Actor::encoding_of(const Collection& c) {
  const auto order = static_cast<unsigned>(c.order());
  return {order == 0 ? KeyOrder::bytes : c.order(), c.duplicates(), c.expires()};
}

bool Actor::collection_of(unsigned s, std::int64_t c, Collection& collection) {
  const std::lock_guard lock(world_.mu);
  StoreSlot& slot = world_.store[s];
  const auto at = static_cast<std::size_t>(c) % kCollections;
  if (slot.store == nullptr) return false;
  if (at == 0) {
    collection = *slot.store;
    return true;
  }
  collection = slot.collection[at];
  return collection.status() != Status::closed;
}

bool Actor::collection_in(const TransactionSlot& x, std::int64_t c, Collection& collection) {
  const Collection& made = x.made[static_cast<std::size_t>(c) % kCollections];
  if (made.status() == Status::closed) return collection_of(x.store, c, collection);
  collection = made;
  return true;
}

void Actor::keep_collection(unsigned s, std::int64_t c, const Collection& collection) {
  const std::lock_guard lock(world_.mu);
  const auto at = static_cast<std::size_t>(c) % kCollections;
  if (at != 0) world_.store[s].collection[at] = collection;
}

// With duplicates the tag is one of few, so that calls use the same pairs.
std::uint64_t Actor::pair_tag(std::int64_t value) {
  const auto v = static_cast<std::uint64_t>(value) % 8;
  return make_tag(v + 1, 16 + v * 5);
}
std::uint64_t Actor::new_tag(const Collection& c, std::int64_t bytes) {
  if (c.duplicates()) return pair_tag(bytes);
  return make_tag(world_.fresh(), static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
}

std::uint64_t Actor::seen_tag(std::string_view value) {
  const auto tag = tag_of(value);
  if (!tag) {
    world_.broken("a value that nobody wrote: " + std::to_string(value.size()) + " bytes \"" +
                  std::string(value.substr(0, 32)) + "\"");
  }
  return *tag;
}
std::uint64_t Actor::seen_key(bool numbers, std::string_view key) {
  const auto k = key_of(numbers, key);
  if (!k) {
    world_.broken("a key that nobody wrote: " + std::to_string(key.size()) + " bytes \"" +
                  std::string(key.substr(0, 32)) + "\"");
  }
  return *k;
}

WriteOptions Actor::how(std::int64_t buffered, std::int64_t ttl) {
  return {buffered != 0 ? Durability::buffered : Durability::sync,
          static_cast<std::uint64_t>(std::max<std::int64_t>(ttl, 0))};
}

void Actor::drop_views() {
  for (ViewSlot& v : world_.view[thread_]) v.view.reset();
}

}  // namespace tenuto::life
