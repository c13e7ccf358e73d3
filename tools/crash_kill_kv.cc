// The killed process's work on keys: single operations, batches and compactions, on keys that all
// threads share, in two collections. Every operation is logged before it starts. Tickets record its
// call and its return.
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "crash_kill_child.h"

namespace tenuto::tool {
namespace {

constexpr std::uint32_t kHotKeys = 8;
constexpr std::uint64_t kKvBugEvery = 40;
constexpr std::uint64_t kTransactionEvery = 3;  // of batches
constexpr std::uint64_t kMovesMax = 64;         // of a compaction

// The low bits of a version of the numbered records select the length class of its value.
enum ValueClass : std::uint64_t { tiny, small, large, huge };
constexpr std::uint64_t kClassBits = 2;

std::uint64_t value_bytes(std::uint64_t hash, ValueClass c) {
  switch (c) {
    case tiny:
      return 8 + hash % 60;
    case small:
      return 8 + hash % 400;
    case large:
      return 8 + hash % 8000;
    case huge:
      break;
  }
  return 20'000 + hash % 40'000;
}

struct Odds {
  std::uint64_t put, erase;  // of 100; the rest are gets
};

Odds odds_of(const KillOrder& order) {
  if (order.mix == KillMix::ycsb_a) return {50, 0};
  if (order.mix != KillMix::fill) return {45, 25};
  return order.emptying ? Odds{5, 85} : Odds{85, 5};
}

class NumberedRecords final : public KillRecords {
 public:
  std::uint32_t count() const override { return 1500; }
  bool named(std::uint32_t key) const override { return key % 3 == 0; }

  std::string key(std::uint32_t key) const override {
    std::string text = std::to_string(kill_hash(key, 1) % 1000) + "/" +
                       std::to_string(kill_hash(key, 2) % 7) + "/" + std::to_string(key);
    if (key % 40 == 0) text += std::string(kill_hash(key, 3) % 300, 'k');
    return text;
  }

  void value(std::uint32_t key, std::uint64_t version, std::string& out) const override {
    const std::uint64_t seed = kill_hash(version, key);
    const auto length_class = static_cast<ValueClass>(version & ((1u << kClassBits) - 1));
    out.resize(value_bytes(seed, length_class));
    std::memcpy(out.data(), &version, sizeof version);
    for (std::size_t at = 8; at < out.size(); at += 8) {
      const std::uint64_t word = kill_hash(seed, at);
      std::memcpy(out.data() + at, &word, std::min<std::size_t>(8, out.size() - at));
    }
  }

  std::uint64_t version(std::string_view, std::string_view value) const override {
    std::uint64_t version = 0;
    if (value.size() >= sizeof version) std::memcpy(&version, value.data(), sizeof version);
    return version;
  }
};

}  // namespace

const KillRecords& numbered_records() {
  static const NumberedRecords records;
  return records;
}

KvWork::KvWork(KillChild& child, std::uint32_t thread, std::uint64_t seed)
    : child_(child),
      log_(child.state_.thread[thread]),
      rng_{seed},
      records_(*child.state_.records),
      load_at_(thread),
      load_step_(child.order_.threads) {
  if (child.order_.bug == KillBug::stale_read) {
    remembered_ = std::make_unique<std::uint64_t[]>(records_.count());
  }
}

bool KvWork::room() const { return written_ + kKillBatchMax <= log_.op.size(); }

KillOp& KvWork::announce(KillVerb verb, std::uint32_t key, std::uint64_t value,
                         std::uint32_t batch) {
  KillOp& op = log_.op[written_++];
  op.key = key;
  op.batch = batch;
  op.verb = verb;
  op.saw = 0;
  op.ended = 0;
  op.end.store(KillEnd::unknown, std::memory_order_relaxed);
  op.invoked = child_.state_.ticket.fetch_add(1);
  op.value = verb == KillVerb::put ? draw_value(op.invoked) : value;
  log_.logged.store(written_, std::memory_order_release);
  return op;
}

void KvWork::acknowledge(KillOp& op, Status s) {
  KillEnd end = KillEnd::done;
  const bool in_transaction = op.batch != 0 || op.verb == KillVerb::get;
  if (s == Status::full || (s == Status::conflict && in_transaction)) {
    end = KillEnd::failed;
  } else if (op.verb == KillVerb::erase && op.batch == 0) {
    if (s != Status::not_found) child_.check(s, "erase");
    if (s == Status::not_found) sync();
    op.saw = s == Status::ok ? 1 : 2;
  } else {
    child_.check(s, op.batch != 0 ? "batch" : "put");
  }
  op.ended = child_.state_.ticket.fetch_add(1);
  op.end.store(end, std::memory_order_release);
}

std::uint32_t KvWork::draw_key() {
  if (child_.order_.mix == KillMix::ycsb_a) {
    // The rank r has a chance of 1/r, nearly as in YCSB's zipfian distribution.
    const double u = static_cast<double>(rng_.below(1u << 30)) / (1u << 30);
    const auto rank = static_cast<std::uint64_t>(std::pow(records_.count(), u));
    return static_cast<std::uint32_t>(kill_hash(rank, 4) % records_.count());
  }
  const bool hot = child_.order_.mix == KillMix::hot ? !rng_.one_in(10) : rng_.one_in(6);
  return static_cast<std::uint32_t>(rng_.below(hot ? kHotKeys : records_.count()));
}

std::uint64_t KvWork::draw_value(std::uint64_t ticket) {
  if (&records_ != &numbered_records()) return ticket;
  const bool longer = child_.order_.mix == KillMix::long_values;
  ValueClass c = rng_.one_in(2) ? tiny : small;
  if (rng_.one_in(longer ? 2 : 16)) c = large;
  if (rng_.one_in(longer ? 10 : 200)) c = huge;
  return (ticket << kClassBits) | c;
}

Status KvWork::do_put(std::uint32_t key, std::uint64_t value) {
  records_.value(key, value, text_);
  return child_.home_of(key).put(key_text_ = records_.key(key), text_);
}

Status KvWork::do_erase(std::uint32_t key) { return child_.home_of(key).erase(records_.key(key)); }

void KvWork::single() {
  std::uint32_t key = 0;
  if (child_.order_.mix == KillMix::ycsb_a && next_missing(key)) return put_one(key);
  key = draw_key();
  const Odds odds = odds_of(child_.order_);
  const std::uint64_t dice = rng_.below(100);
  if (dice < odds.put) {
    put_one(key);
  } else if (dice < odds.put + odds.erase) {
    KillOp& op = announce(KillVerb::erase, key, 0, 0);
    acknowledge(op, do_erase(key));
  } else {
    do_get(announce(KillVerb::get, key, 0, 0));
  }
}

// The next key of this thread's share that the last look did not find.
bool KvWork::next_missing(std::uint32_t& key) {
  while (load_at_ < records_.count() && child_.state_.key[load_at_] != 0) load_at_ += load_step_;
  if (load_at_ >= records_.count()) return false;
  key = load_at_;
  load_at_ += load_step_;
  return true;
}

void KvWork::put_one(std::uint32_t key) {
  const KillBug bug = rng_.one_in(kKvBugEvery) ? child_.order_.bug : KillBug::none;
  KillOp& op = announce(KillVerb::put, key, 0, 0);
  if (bug == KillBug::forget_put) {
    acknowledge(op, Status::ok);
  } else if (child_.order_.bug == KillBug::early_ack) {
    acknowledge(op, Status::ok);
    child_.check(do_put(key, op.value), "put");
  } else {
    acknowledge(op, do_put(key, op.value));
  }
}

void KvWork::do_get(KillOp& op) {
  key_text_ = records_.key(op.key);
  const bool in_place = rng_.one_in(2);
  std::string got;
  Status s = Status::ok;
  if (in_place) {
    const Result<View> view = child_.home_of(op.key).view(key_text_);
    s = view ? Status::ok : view.error();
    if (view) got = view->value();
  } else {
    s = child_.home_of(op.key).get(key_text_, got);
  }
  note_got(op, s, got);
  if (remembered_ != nullptr) {
    std::uint64_t& last = remembered_[op.key];
    const std::uint64_t now = op.value;
    if (last != 0 && rng_.one_in(kKvBugEvery)) op.value = last;
    last = now;
  }
  op.ended = child_.state_.ticket.fetch_add(1);
  op.end.store(KillEnd::done, std::memory_order_release);
}

// On medium journal a get, or an erase that finds nothing, may see what another thread has not made
// durable yet. Only what is durable is noted, because a kill may take the rest.
void KvWork::sync() { child_.check(child_.store_->sync(), "sync"); }

void KvWork::note_got(KillOp& op, Status s, const std::string& got) {
  sync();
  if (s != Status::not_found) child_.check(s, "get");
  op.value = s == Status::ok ? records_.version(records_.key(op.key), got) : 0;
  if (s != Status::ok) return;
  records_.value(op.key, op.value, text_);
  if (got != text_) child_.fail("a get saw a torn value of key " + records_.key(op.key));
}

std::vector<std::uint32_t> KvWork::draw_keys() {
  const std::uint64_t entries = 1 + rng_.below(kKillBatchMax);
  std::set<std::uint32_t> keys;
  // Half of the time the keys are neighbours, so that they also share leaves.
  const bool near = rng_.one_in(2);
  const std::uint32_t from = draw_key();
  for (std::uint32_t tries = 0; keys.size() < entries && tries < 4 * kKillBatchMax; ++tries) {
    keys.insert(near ? (from + tries) % records_.count() : draw_key());
  }
  return {keys.begin(), keys.end()};
}

// Runs a batch, or a transaction that reads some of the keys and writes the others.
void KvWork::batch() {
  const KillBug bug = child_.order_.bug;
  const bool torn = bug == KillBug::torn_batch || bug == KillBug::parted_batch;
  const bool transaction = !torn && rng_.one_in(kTransactionEvery);
  const std::vector<std::uint32_t> keys = draw_keys();
  const auto reads = transaction ? static_cast<std::uint32_t>(rng_.below(keys.size() + 1)) : 0;
  const Odds odds = odds_of(child_.order_);
  const std::uint32_t from = written_;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    if (i < reads) {
      announce(KillVerb::get, keys[i], 0, 0);
      continue;
    }
    const bool puts = rng_.below(odds.put + odds.erase) < odds.put;
    announce(puts ? KillVerb::put : KillVerb::erase, keys[i], 0, from + reads + 1);
  }
  const Status s = torn          ? write_torn(from)
                   : transaction ? write_transaction(from)
                                 : write_batch(from, nullptr);
  if (s == Status::ok && transaction) log_.transactions.fetch_add(1, std::memory_order_relaxed);
  for (std::uint32_t i = from; i < written_; ++i) acknowledge(log_.op[i], s);
}

Status KvWork::write_batch(std::uint32_t from, const Collection* only) {
  WriteBatch batch;
  for (std::uint32_t i = from; i < written_; ++i) {
    const KillOp& op = log_.op[i];
    const Collection& home = child_.home_of(op.key);
    if (only != nullptr && only != &home) continue;
    if (op.verb == KillVerb::put) {
      records_.value(op.key, op.value, text_);
      batch.put({home, records_.key(op.key)}, text_);
    } else {
      batch.erase({home, records_.key(op.key)});
    }
  }
  return child_.store_->write(batch);
}

// All reads and writes of the last attempt take effect at one point in time before the return.
Status KvWork::write_transaction(std::uint32_t from) {
  return child_.store_->run([&](StoreTransaction& tx) {
    for (std::uint32_t i = from; i < written_; ++i) TENUTO_TRY(do_in(tx, log_.op[i]));
    return Status::ok;
  });
}

Status KvWork::do_in(StoreTransaction& tx, KillOp& op) {
  const Collection& home = child_.home_of(op.key);
  key_text_ = records_.key(op.key);
  if (op.verb == KillVerb::erase) return tx.erase({home, key_text_});
  if (op.verb == KillVerb::put) {
    records_.value(op.key, op.value, text_);
    return tx.put({home, key_text_}, text_);
  }
  std::string got;
  const Status s = tx.get({home, key_text_}, got);
  if (s != Status::ok && s != Status::not_found) return s;
  note_got(op, s, got);
  return Status::ok;
}

Status KvWork::write_torn(std::uint32_t from) {
  if (child_.order_.bug == KillBug::parted_batch) {
    TENUTO_TRY(write_batch(from, &child_.collection_[0]));
    return write_batch(from, &child_.collection_[1]);
  }
  for (std::uint32_t i = from; i < written_; ++i) {
    const KillOp& op = log_.op[i];
    const Status s = op.verb == KillVerb::put ? do_put(op.key, op.value) : do_erase(op.key);
    if (s == Status::full) return s;
    if (s != Status::not_found) child_.check(s, "entry");
  }
  return Status::ok;
}

// Compacts a small part at a time.
void KvWork::compact() {
  CompactOptions o;
  o.moves_max = 1 + rng_.below(kMovesMax);
  o.occupancy = rng_.one_in(2) ? 0.7 : 1.0;
  Report report;
  log_.compactions.fetch_add(1, std::memory_order_relaxed);
  const auto stats = child_.store_->compact(o, &report);
  if (!stats && stats.error() != Status::busy) {
    child_.fail("compact: " + std::string(status_name(stats.error())) + " " + report.text());
  }
}

}  // namespace tenuto::tool
