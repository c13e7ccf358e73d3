#include "support/joint_world.h"

#include <algorithm>
#include <optional>

#include "support/explored_medium.h"
#include "tenuto/p.h"

namespace tenuto::test {

namespace {

PoolOptions tiny() {
  PoolOptions o = PoolParts::small_options();
  o.size = o.size_max = kPoolBytesMin;
  return on_explored_medium(o);
}

}  // namespace

void JointState::apply(JointOp op, std::size_t pools) {
  step += 1;
  if (op == JointOp::count) counted += 1;
  if (op == JointOp::free_alone) spare = false;
  const std::size_t last = pools - 1;
  for (std::size_t i = 0; i < pools; ++i) {
    OfPool& p = pool[i];
    switch (op) {
      case JointOp::add:
      case JointOp::fields:
      case JointOp::other_led:
        p.word = step * 10 + i;
        break;
      case JointOp::make:
        p.tag = step * 10 + i;
        break;
      case JointOp::move:
        if (i == 0) p.tag = 0;
        if (i == last) p.tag = step * 10 + i;
        break;
      case JointOp::release:
        p.tag = 0;
        break;
      case JointOp::one:
        if (i == last) p.word = step;
        break;
      case JointOp::many:
        p.spread = step * 10 + i;
        break;
      case JointOp::append:
        if (i == 0) p.slots += 1;
        p.word = step * 10 + i;
        break;
      case JointOp::count:
      case JointOp::free_alone:
      case JointOp::undone:
      case JointOp::part_undone:
      case JointOp::limbo:
        break;
    }
  }
}

// The pools of a world, open.
struct JointCrash::Pools {
  explicit Pools(std::size_t n) : parts(n) {}

  JointWorld& world(std::size_t i) { return parts[i].get_root<JointWorld>(0); }
  std::uint64_t& tag_of(Ptr<std::uint64_t>& dest) { return *dest.get(); }

  // Opens those that decide before those that wait for them.
  std::string open(const std::function<std::string(std::size_t)>& path) {
    std::vector<bool> open(parts.size(), false);
    for (std::size_t round = 0; round < parts.size(); ++round) {
      for (std::size_t i = 0; i < parts.size(); ++i) {
        if (open[i]) continue;
        const Status s = parts[i].open(path(i), tiny());
        open[i] = s == Status::ok;
        if (s == Status::in_doubt) {
          parts[i].crash();
        } else if (s != Status::ok) {
          return "open: " + parts[i].report.text();
        }
      }
    }
    const bool all = std::all_of(open.begin(), open.end(), [](bool o) { return o; });
    return all ? "" : "a pool stays in doubt";
  }
  void crash() {
    for (TxParts& p : parts) p.crash();
  }
  Status close() {
    for (TxParts& p : parts) TENUTO_TRY(p.close());
    return Status::ok;
  }

  Status perform(JointOp op, const JointState& after);
  std::string differs(const JointState& state);
  std::string blocks(const JointState& state);

  std::vector<TxParts> parts;

 private:
  using Txns = std::vector<tx::Txn*>;
  // Begins one transaction over all pools. `leader` is the pool that begins first.
  Status begin(std::size_t leader, Txns& txns);
  Status put(JointOp op, std::size_t i, tx::Txn& txn, const JointState& after);
  Status put_word(std::size_t i, tx::Txn& txn, std::uint64_t value);
  Status put_block(std::size_t i, tx::Txn& txn, std::uint64_t tag);
};

Status JointCrash::Pools::begin(std::size_t leader, Txns& txns) {
  for (TxParts& p : parts) txns.push_back(&p.engine->mine());
  TENUTO_TRY(txns[leader]->begin());
  for (std::size_t i = 0; i < txns.size(); ++i) {
    if (i != leader) TENUTO_TRY(txns[i]->begin_with(*txns[leader]));
  }
  return Status::ok;
}

Status JointCrash::Pools::put_word(std::size_t i, tx::Txn& txn, std::uint64_t value) {
  TENUTO_TRY(txn.add(&world(i).word[0], 8));
  world(i).word[0] = value;
  return Status::ok;
}

// Frees the block that is there, and makes one, unless tag is 0.
Status JointCrash::Pools::put_block(std::size_t i, tx::Txn& txn, std::uint64_t tag) {
  Ptr<std::uint64_t>& dest = world(i).dest[0];
  std::uint64_t* fresh = nullptr;
  if (tag != 0) {
    const Result<void*> block = txn.alloc(64);
    if (!block) return block.error();
    fresh = static_cast<std::uint64_t*>(*block);
    *fresh = tag;
  }
  if (dest) TENUTO_TRY(txn.free(dest.get()));
  TENUTO_TRY(txn.add(&dest, sizeof dest));
  dest = fresh;
  return Status::ok;
}

Status JointCrash::Pools::put(JointOp op, std::size_t i, tx::Txn& txn, const JointState& after) {
  const JointState::OfPool& to = after.pool[i];
  JointWorld& w = world(i);
  switch (op) {
    case JointOp::add:
    case JointOp::other_led:
      return put_word(i, txn, to.word);
    case JointOp::fields:
      txn.store_field(&w.word[0], &to.word, 8, nullptr);
      return txn.status();
    case JointOp::make:
    case JointOp::release:
      return put_block(i, txn, to.tag);
    case JointOp::move:
      return i == 0 || i + 1 == parts.size() ? put_block(i, txn, to.tag) : Status::ok;
    case JointOp::one:
      return i + 1 == parts.size() ? put_word(i, txn, to.word) : Status::ok;
    case JointOp::many:
      for (auto& s : w.spread) TENUTO_TRY(txn.add_later(&s.word, 8));
      TENUTO_TRY(txn.ready());
      for (auto& s : w.spread) s.word = to.spread;
      return Status::ok;
    case JointOp::append:
      if (i == 0) {
        std::uint64_t& slot = w.slot[to.slots];
        TENUTO_TRY(txn.overwrite(&slot, 8));
        slot = to.slots;
        TENUTO_TRY(txn.add(&w.slot[0], 8));
        w.slot[0] = to.slots;
      }
      return put_word(i, txn, to.word);
    case JointOp::free_alone:
      return txn.free(w.dest[1].get());
    case JointOp::count:
      if (i == 0) {
        std::uint64_t& slot = w.counted[after.counted - 1];
        TENUTO_TRY(txn.overwrite(&slot, 8));
        slot = after.counted * 11;
      }
      if (i + 1 == parts.size()) txn.store_field(&w.word[7], &after.counted, 8, nullptr);
      return txn.status();
    case JointOp::undone:
    case JointOp::part_undone:
      TENUTO_TRY(put_word(i, txn, 99));
      return put_block(i, txn, 99);
    case JointOp::limbo:
      break;
  }
  return Status::ok;
}

Status JointCrash::Pools::perform(JointOp op, const JointState& after) {
  if (op == JointOp::limbo) {
    const std::uint64_t id =
        parts.back().file->superblock().pool_id;  // all of its parts have ended
    for (TxParts& p : parts) {
      TENUTO_TRY(p.engine->forget_pool(id));
      TENUTO_TRY(p.engine->drain());
    }
    return Status::ok;
  }
  const bool last_leads = op == JointOp::other_led || op == JointOp::count;
  const std::size_t leader = last_leads ? parts.size() - 1 : 0;
  Txns txns;
  TENUTO_TRY(begin(leader, txns));
  for (std::size_t i = 0; i < parts.size(); ++i) TENUTO_TRY(put(op, i, *txns[i], after));
  if (op == JointOp::part_undone) txns[parts.size() - 1]->abort();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool ended = op == JointOp::part_undone && i + 1 == parts.size();
    if (i != leader && !ended) static_cast<void>(txns[i]->commit());
  }
  if (op == JointOp::undone || op == JointOp::part_undone) {
    txns[leader]->abort();
    return Status::ok;
  }
  return txns[leader]->commit();
}

// What a pool shows that is not the state; empty: nothing.
std::string JointCrash::Pools::differs(const JointState& state) {
  if (world(parts.size() - 1).word[7] != state.counted) return "the count of another pool's slots";
  for (std::size_t k = 0; k < state.counted; ++k) {
    if (world(0).counted[k] != (k + 1) * 11) return "a slot that another pool counts";
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const JointState::OfPool& s = state.pool[i];
    JointWorld& w = world(i);
    const auto in = [&](const char* what) {
      return std::string(what) + " of pool " + std::to_string(i);
    };
    if (w.word[0] != s.word) return in("the word");
    if (w.slot[0] != s.slots) return in("the count");
    for (std::size_t k = 1; k <= s.slots; ++k) {
      if (w.slot[k] != k) return in("a slot");
    }
    for (const auto& spread : w.spread) {
      if (spread.word != s.spread) return in("a spread word");
    }
    if (w.dest[0] ? *w.dest[0].get() != s.tag : s.tag != 0) return in("the block");
  }
  return {};
}

std::string JointCrash::Pools::blocks(const JointState& state) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TxParts& p = parts[i];
    const bool named = state.pool[i].tag != 0;
    const std::string of = " of pool " + std::to_string(i);
    if (named && !p.heap->find_allocated(p.file->offset_of(world(i).dest[0].get())))
      return "a reachable block is free" + of;
    if (p.allocated_blocks().size() != 1u + named + state.spare) return "a block leaked" + of;
    if (p.heap->validate(&p.report) != Status::ok) return "heap: " + p.report.text();
    if (p.engine->validate(&p.report) != Status::ok) return "tx: " + p.report.text();
  }
  return {};
}

void JointCrash::setup(const std::string& path) const {
  for (std::size_t i = 0; i < pools_; ++i) {
    TxParts p;
    ASSERT_EQ(p.create(crash_path(path, i), tiny()), Status::ok) << p.report.text();
    JointWorld& world = p.make_root<JointWorld>(0);
    ASSERT_EQ(p.run([&](Transaction& tx) {
      const Result<void*> block = tx.alloc(64);
      if (!block) return block.error();
      TENUTO_TRY(tx.add(world.dest[1]));
      world.dest[1] = static_cast<std::uint64_t*>(*block);
      return Status::ok;
    }),
              Status::ok);
    ASSERT_EQ(p.close(), Status::ok);
  }
}

void JointCrash::workload(CrashContext& c) const {
  c.update([&] { states_.assign(1, JointState{}); });
  Pools p(pools_);
  ASSERT_EQ(p.open([&](std::size_t i) { return c.path(i); }), "");
  for (const JointOp op : script_) {
    JointState after = states_.back();
    after.apply(op, pools_);
    c.update([&] { states_.push_back(after); });
    c.invoke();
    EXPECT_EQ(p.perform(op, after), Status::ok);
    c.ack();
  }
  ASSERT_EQ(p.close(), Status::ok);
}

// The recovered pools work together, and a later open does not undo that.
std::string JointCrash::use_again(Pools& p, const CrashImage& image,
                                  const JointState& found) const {
  JointState after = found;
  for (const JointOp op : {JointOp::add, JointOp::make}) {
    after.apply(op, pools_);
    if (p.perform(op, after) != Status::ok) return "a transaction after recovery failed";
  }
  p.crash();
  if (std::string e = p.open([&](std::size_t i) { return image.path(i); }); !e.empty()) {
    return "again: " + e;
  }
  if (!p.differs(after).empty()) return "a later open changed " + p.differs(after);
  if (std::string e = p.blocks(after); !e.empty()) return "later open: " + e;
  return p.close() == Status::ok ? "" : "close failed";
}

std::string JointCrash::check(const CrashImage& image) const {
  Pools p(pools_);
  if (std::string e = p.open([&](std::size_t i) { return image.path(i); }); !e.empty()) return e;
  std::optional<JointState> found;
  std::string wrong;
  for (std::size_t n = image.acknowledged(); n <= image.invoked(); ++n) {
    std::string here = p.differs(states_.at(n));
    if (here.empty()) {
      here = p.blocks(states_[n]);
    } else {
      here = "the pools show no number of steps: " + here;
    }
    if (here.empty()) {
      found = states_[n];
    } else {
      wrong = std::move(here);
    }
  }
  if (!found) return wrong;
  image.recovered();
  return use_again(p, image, *found);
}

CrashResult JointCrash::run(CrashOptions options) const {
  options.files = pools_;
  return CrashRunner(options).run([this](const std::string& path) { setup(path); },
                                  [this](CrashContext& c) { workload(c); },
                                  [this](const CrashImage& i) { return check(i); });
}

}  // namespace tenuto::test
