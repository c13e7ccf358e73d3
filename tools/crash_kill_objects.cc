// The killed process's work on objects: transactions on balances and chains of blocks, and the
// heap's own atomic calls on slots.
#include <array>

#include "crash_kill_child.h"

namespace tenuto::tool {
namespace {

constexpr std::uint64_t kEmptyChain = 3;
constexpr std::uint64_t kAbortEvery = 8;
constexpr std::uint64_t kObjectBugEvery = 20;
constexpr std::uint64_t kSlotBytesMax = 10u << 20;  // all slots together, roughly
constexpr std::uint64_t kSeasonTickets = 4000;

}  // namespace

std::uint64_t kill_chain_state(const KillChain& chain, std::uint32_t skip) {
  std::array<std::uint64_t, kChainNodesMax> id;
  std::size_t n = 0;
  for (const KillNode* node = chain.head.get(); node != nullptr && n < id.size();
       node = node->next.get()) {
    id[n++] = node->id;
  }
  std::uint64_t state = kEmptyChain;
  while (n > skip) state = kill_hash(id[--n], state);
  return state;
}

void kill_fill_slot(std::uint64_t* block, std::uint64_t stamp) {
  block[0] = stamp;
  for (std::uint64_t i = 1; i < kill_stamp_bytes(stamp) / 8; ++i) block[i] = kill_hash(stamp, i);
}

ObjectWork::ObjectWork(KillChild& child, std::uint32_t thread, std::uint64_t seed)
    : child_(child), log_(child.state_.thread[thread]), rng_{seed} {}

void ObjectWork::one() {
  switch (rng_.below(3)) {
    case 0:
      return transfer();
    case 1:
      return push_or_pop();
    default:
      return move();
  }
}

template <class Body>
void ObjectWork::transaction(Body body) {
  const bool abort = rng_.one_in(kAbortEvery);
  const Status s = child_.store_->pool().run([&](Transaction& tx) {
    TENUTO_TRY(body(tx));
    return abort ? Status::aborted : Status::ok;
  });
  if (s != Status::ok && s != Status::full && !(abort && s == Status::aborted)) {
    child_.check(s, "transaction");
  }
}

// REQUIRES: `tx` holds the locks of all the cells. The pool's contents must equal the model's.
void ObjectWork::begin(Transaction& tx, std::initializer_list<KillStep::Change> changes) {
  for (const KillStep::Change& c : changes) {
    const std::uint64_t model = child_.state_.cell[c.cell];
    if (c.before != model) {
      child_.fail("cell " + std::to_string(c.cell) + " holds " + std::to_string(c.before) +
                  " and must hold " + std::to_string(model) + ", under its lock, without a crash");
    }
  }
  child_.begin_step(log_, changes);
  child_.check(tx.on_commit([this] { child_.end_step(log_); }), "on_commit");
  child_.check(tx.on_abort([this] { child_.cancel_step(log_); }), "on_abort");
}

Status ObjectWork::transfer_in(Transaction& tx, std::uint32_t from, std::uint32_t to) {
  std::uint64_t* balance = child_.root_->balance;
  // With this bug, one of the two old values is sometimes not saved.
  if (child_.order_.bug != KillBug::unlogged_store || !rng_.one_in(kObjectBugEvery)) {
    TENUTO_TRY(tx.add_later(balance[from]));
  }
  TENUTO_TRY(tx.add_later(balance[to]));
  TENUTO_TRY(tx.ready());
  balance[from] -= 1;
  balance[to] += 1;
  return Status::ok;
}

void ObjectWork::transfer() {
  const auto from = static_cast<std::uint32_t>(rng_.below(kBalances));
  const auto to = static_cast<std::uint32_t>(rng_.below(kBalances));
  if (from == to) return;
  transaction([&](Transaction& tx) {
    TENUTO_TRY(tx.lock(child_.cell_mu_[std::min(from, to)]));
    TENUTO_TRY(tx.lock(child_.cell_mu_[std::max(from, to)]));
    const std::uint64_t* balance = child_.root_->balance;
    if (balance[from] == 0) return Status::ok;
    begin(tx, {{from, balance[from], balance[from] - 1}, {to, balance[to], balance[to] + 1}});
    return transfer_in(tx, from, to);
  });
}

Status ObjectWork::pop(Transaction& tx, KillChain& chain) {
  KillNode* node = chain.head.get();
  TENUTO_TRY(tx.add(chain));
  chain.head = node->next;
  chain.count -= 1;
  return tx.destroy(node);
}

// Also moves an amount, so that one transaction has both blocks and plain stores.
void ObjectWork::push_or_pop() {
  const auto c = static_cast<std::uint32_t>(rng_.below(kChains));
  const auto b = static_cast<std::uint32_t>(rng_.below(kBalances - 1));
  const bool push = rng_.one_in(2);
  KillChain& chain = child_.root_->chain[c];
  const std::uint32_t cell = kChainCells + c;
  transaction([&](Transaction& tx) {
    for (const std::uint32_t lock : {b, b + 1, cell}) {
      TENUTO_TRY(tx.lock(child_.cell_mu_[lock]));
    }
    const std::uint64_t* balance = child_.root_->balance;
    const bool fits = push ? chain.count < kChainNodesMax : chain.count > 0;
    if (!fits || balance[b] == 0) return Status::ok;
    const std::uint64_t before = kill_chain_state(chain);
    const std::uint64_t id = child_.state_.ticket.fetch_add(1) + 1;
    const std::uint64_t after = push ? kill_hash(id, before) : kill_chain_state(chain, 1);
    begin(tx, {{cell, before, after},
               {b, balance[b], balance[b] - 1},
               {b + 1, balance[b + 1], balance[b + 1] + 1}});
    TENUTO_TRY(transfer_in(tx, b, b + 1));
    if (!push) return pop(tx, chain);
    TENUTO_TRY(tx.add(chain));
    const std::uint64_t words = rng_.one_in(12) ? rng_.below(900) : rng_.below(30);
    auto block = tx.alloc(sizeof(KillNode) + words * 8);
    if (!block) return block.error();
    auto* node = new (*block) KillNode{{}, id, words};
    node->next = chain.head;
    for (std::uint64_t i = 0; i < words; ++i) *node->at(i) = node->filling(i);
    chain.head = node;
    chain.count += 1;
    return Status::ok;
  });
}

// The head of one chain becomes the head of another.
void ObjectWork::move() {
  const auto from = static_cast<std::uint32_t>(rng_.below(kChains));
  const auto to = static_cast<std::uint32_t>(rng_.below(kChains));
  if (from == to) return;
  KillChain& a = child_.root_->chain[from];
  KillChain& b = child_.root_->chain[to];
  transaction([&](Transaction& tx) {
    TENUTO_TRY(tx.lock(child_.cell_mu_[kChainCells + std::min(from, to)]));
    TENUTO_TRY(tx.lock(child_.cell_mu_[kChainCells + std::max(from, to)]));
    if (a.count == 0 || b.count == kChainNodesMax) return Status::ok;
    KillNode* node = a.head.get();
    const std::uint64_t there = kill_chain_state(b);
    begin(tx, {{kChainCells + from, kill_chain_state(a), kill_chain_state(a, 1)},
               {kChainCells + to, there, kill_hash(node->id, there)}});
    TENUTO_TRY(tx.add_later(a));
    TENUTO_TRY(tx.add_later(b));
    TENUTO_TRY(tx.add_later(node->next));
    TENUTO_TRY(tx.ready());
    a.head = node->next;
    a.count -= 1;
    node->next = b.head;
    b.head = node;
    b.count += 1;
    return Status::ok;
  });
}

HeapWork::HeapWork(KillChild& child, std::uint32_t thread, std::uint64_t seed)
    : child_(child), log_(child.state_.thread[thread]), rng_{seed} {}

// The thread that holds a slot may differ from the one that filled it. malloc_to and free_from
// require a locked instruction at such a hand-over; the exchanges are locked instructions.
template <class F>
void HeapWork::holding(std::initializer_list<std::uint32_t> slots, const F& f) {
  std::size_t held = 0;
  for (const std::uint32_t slot : slots) {
    if (child_.slot_held_[slot].exchange(true)) break;
    held += 1;
  }
  if (held == slots.size()) f();
  for (std::size_t i = 0; i < held; ++i) child_.slot_held_[slots.begin()[i]].exchange(false);
}

void HeapWork::one() {
  const auto slot = static_cast<std::uint32_t>(rng_.below(kSlots));
  if (slot >= kPlainSlots && rng_.one_in(4)) return swap(slot);
  if (slot >= kPlainSlots && rng_.one_in(4)) return batch(slot);
  holding({slot}, [&] {
    const std::uint64_t stamp = stamp_of(slot);
    if (stamp == kSlotEmpty) {
      rng_.one_in(2) ? allocate(slot) : reserve(slot);
    } else if (stamp == kSlotRaw && rng_.one_in(2)) {
      fill(slot);
    } else {
      release(slot);
    }
  });
}

void HeapWork::swap(std::uint32_t a) {
  const auto b = kPlainSlots + static_cast<std::uint32_t>(rng_.below(kSlots - kPlainSlots));
  if (a == b) return;
  holding({a, b}, [&] {
    VPtr<std::uint64_t>* const words = child_.root_->versioned;
    const std::uint64_t in_a = stamp_of(a), in_b = stamp_of(b);
    child_.begin_step(log_, {{kSlotCells + a, in_a, in_b}, {kSlotCells + b, in_b, in_a}});
    child_.check(child_.store_->pool().swap(words[a - kPlainSlots], words[b - kPlainSlots]),
                 "swap");
    child_.end_step(log_);
  });
}

// Three neighbours with blocks of one size have one intent, so a kill leaves all of them or none.
// With several sizes they have two.
void HeapWork::batch(std::uint32_t slot) {
  const std::uint32_t a = std::min(slot, kSlots - 3);
  holding({a, a + 1, a + 2}, [&] {
    Pool& pool = child_.store_->pool();
    const std::span<VPtr<std::uint64_t>> words(&child_.root_->versioned[a - kPlainSlots], 3);
    const std::uint64_t stamp[3] = {stamp_of(a), stamp_of(a + 1), stamp_of(a + 2)};
    const bool none = stamp[0] == kSlotEmpty && stamp[1] == kSlotEmpty && stamp[2] == kSlotEmpty;
    const bool all = stamp[0] != kSlotEmpty && stamp[1] != kSlotEmpty && stamp[2] != kSlotEmpty;
    if (!none && !all) return;
    const auto size = [&](std::size_t i) { return pool.usable_size(words[i].get()); };
    if (all && (size(0) != size(1) || size(0) != size(2))) return;
    const std::uint64_t after = none ? kSlotRaw : kSlotEmpty;
    child_.begin_step(log_, {{kSlotCells + a, stamp[0], after},
                             {kSlotCells + a + 1, stamp[1], after},
                             {kSlotCells + a + 2, stamp[2], after}});
    const Status s = none ? pool.malloc_to(16 + rng_.below(250), words) : pool.free_from(words);
    if (s == Status::full) return child_.cancel_step(log_);
    child_.check(s, none ? "malloc_to of three" : "free_from of three");
    child_.end_step(log_);
    for (const std::uint64_t old : stamp) {
      child_.slot_bytes_ -= old > kSlotRaw ? kill_stamp_bytes(old) : 0;
    }
  });
}

// Half of the sizes depend on the season, so that slabs of the previous season are morphed.
std::uint64_t HeapWork::draw_bytes() {
  constexpr std::array<std::uint64_t, 5> kSeasons = {40, 900, 110, 3000, 300};
  const std::uint64_t season = child_.state_.ticket.load() / kSeasonTickets;
  if (rng_.one_in(2)) return kSeasons[season % kSeasons.size()] / 8 * 8 + 16;
  const std::uint64_t dice = child_.slot_bytes_.load() > kSlotBytesMax ? 0 : rng_.below(100);
  const std::uint64_t most = dice < 60 ? 256 : dice < 85 ? 4096 : dice < 97 ? 32'768 : 300'000;
  return 16 + rng_.below(most) / 8 * 8;
}

std::uint64_t HeapWork::draw_stamp(std::uint64_t bytes) {
  return (child_.state_.ticket.fetch_add(1) + 1) << 20 | bytes;
}

void HeapWork::allocate(std::uint32_t slot) {
  child_.begin_step(log_, {{kSlotCells + slot, kSlotEmpty, kSlotRaw}});
  Pool& pool = child_.store_->pool();
  KillRoot& root = *child_.root_;
  const std::uint64_t bytes = draw_bytes();
  const Status s = slot < kPlainSlots ? pool.malloc_to(bytes, root.slot[slot])
                                      : pool.malloc_to(bytes, root.versioned[slot - kPlainSlots]);
  if (s == Status::full) return child_.cancel_step(log_);
  child_.check(s, "malloc_to");
  child_.end_step(log_);
  fill(slot);
}

// Writes the block's bytes in place. Until this is acknowledged, they are undefined.
void HeapWork::fill(std::uint32_t slot) {
  std::uint64_t* block = child_.root_->block(slot);
  const std::uint64_t usable = child_.store_->pool().usable_size(block);
  if (usable < 16) child_.fail("a slot's block has no size");
  const std::uint64_t stamp = draw_stamp(std::min<std::uint64_t>(usable / 8 * 8, 300'000));
  child_.begin_step(log_, {{kSlotCells + slot, kSlotRaw, stamp}});
  kill_fill_slot(block, stamp);
  flush_bytes(block, kill_stamp_bytes(stamp));
  fence("slot's block", "slot is acknowledged");
  child_.end_step(log_);
  child_.slot_bytes_ += kill_stamp_bytes(stamp);
}

void HeapWork::reserve(std::uint32_t slot) {
  Pool& pool = child_.store_->pool();
  const std::uint64_t bytes = draw_bytes();
  auto reserved = pool.reserve(bytes);
  if (!reserved && reserved.error() == Status::full) return;
  if (!reserved) child_.check(reserved.error(), "reserve");
  if (rng_.one_in(6)) return child_.check(pool.cancel(*reserved), "cancel");
  const std::uint64_t stamp = draw_stamp(bytes);
  kill_fill_slot(static_cast<std::uint64_t*>(reserved->data), stamp);
  flush_bytes(reserved->data, bytes);
  fence("slot's block", "slot is published");
  child_.begin_step(log_, {{kSlotCells + slot, kSlotEmpty, stamp}});
  KillRoot& root = *child_.root_;
  child_.check(slot < kPlainSlots
                   ? pool.publish(*reserved, root.slot[slot].word())
                   : pool.publish(*reserved, root.versioned[slot - kPlainSlots].word()),
               "publish");
  child_.end_step(log_);
  child_.slot_bytes_ += bytes;
}

void HeapWork::release(std::uint32_t slot) {
  const std::uint64_t stamp = child_.state_.cell[kSlotCells + slot];
  const std::uint64_t* block = child_.root_->block(slot);
  if (stamp > kSlotRaw && *block != stamp) {
    child_.fail("slot " + std::to_string(slot) + ": another's bytes in its block");
  }
  child_.begin_step(log_, {{kSlotCells + slot, stamp, kSlotEmpty}});
  if (slot >= kPlainSlots) {
    VPtr<std::uint64_t>& word = child_.root_->versioned[slot - kPlainSlots];
    child_.check(child_.store_->pool().free_from(word), "free_from");
  } else if (child_.order_.bug == KillBug::lost_block && rng_.one_in(kObjectBugEvery)) {
    publish(child_.root_->slot[slot].word(), {});
    fence("slot", "slot is acknowledged");
  } else {
    child_.check(child_.store_->pool().free_from(child_.root_->slot[slot]), "free_from");
  }
  child_.end_step(log_);
  child_.slot_bytes_ -= stamp > kSlotRaw ? kill_stamp_bytes(stamp) : 0;
}

}  // namespace tenuto::tool
