// What the killed process does to keys: single operations and batches, on keys that all threads
// share. Every operation is in the log before it begins, with tickets of its call and its return.
#include <set>
#include <vector>

#include "crash_kill_child.h"

namespace tenuto::tool {
namespace {

constexpr std::uint32_t kHotKeys = 8;
constexpr std::uint64_t kBugEvery = 40;

// The low bits of a version say how long its value is.
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
  if (order.mix != KillMix::fill) return {45, 25};
  return order.emptying ? Odds{5, 85} : Odds{85, 5};
}

}  // namespace

std::string kill_key(std::uint32_t key) {
  std::string text = std::to_string(kill_hash(key, 1) % 1000) + "/" +
                     std::to_string(kill_hash(key, 2) % 7) + "/" + std::to_string(key);
  if (key % 40 == 0) text += std::string(kill_hash(key, 3) % 300, 'k');
  return text;
}

void kill_value(std::uint32_t key, std::uint64_t version, std::string& out) {
  const std::uint64_t seed = kill_hash(version, key);
  const auto length_class = static_cast<ValueClass>(version & ((1u << kClassBits) - 1));
  out.resize(value_bytes(seed, length_class));
  std::memcpy(out.data(), &version, sizeof version);
  for (std::size_t at = 8; at < out.size(); at += 8) {
    const std::uint64_t word = kill_hash(seed, at);
    std::memcpy(out.data() + at, &word, std::min<std::size_t>(8, out.size() - at));
  }
}

std::uint64_t kill_version(std::string_view value) {
  std::uint64_t version = 0;
  if (value.size() >= sizeof version) std::memcpy(&version, value.data(), sizeof version);
  return version;
}

KvWork::KvWork(KillChild& child, std::uint32_t thread, std::uint64_t seed)
    : child_(child), log_(child.state_.thread[thread]), rng_{seed} {
  if (child.order_.bug == KillBug::stale_read) {
    remembered_ = std::make_unique<std::uint64_t[]>(kKillKeys);
  }
}

bool KvWork::room() const { return written_ + kKillBatchMax <= kKillLogMax; }

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
  if (s == Status::full) {
    end = KillEnd::failed;
  } else if (op.verb == KillVerb::erase && op.batch == 0) {
    if (s != Status::not_found) child_.check(s, "erase");
    op.saw = s == Status::ok ? 1 : 2;
  } else {
    child_.check(s, op.batch != 0 ? "batch" : "put");
  }
  op.ended = child_.state_.ticket.fetch_add(1);
  op.end.store(end, std::memory_order_release);
}

std::uint32_t KvWork::draw_key() {
  const bool hot = child_.order_.mix == KillMix::hot ? !rng_.one_in(10) : rng_.one_in(6);
  return static_cast<std::uint32_t>(rng_.below(hot ? kHotKeys : kKillKeys));
}

std::uint64_t KvWork::draw_value(std::uint64_t ticket) {
  const bool longer = child_.order_.mix == KillMix::long_values;
  ValueClass c = rng_.one_in(2) ? tiny : small;
  if (rng_.one_in(longer ? 2 : 16)) c = large;
  if (rng_.one_in(longer ? 10 : 200)) c = huge;
  return (ticket << kClassBits) | c;
}

Status KvWork::do_put(std::uint32_t key, std::uint64_t value) {
  kill_value(key, value, text_);
  return child_.store_->put(key_text_ = kill_key(key), text_);
}

void KvWork::single() {
  const std::uint32_t key = draw_key();
  const Odds odds = odds_of(child_.order_);
  const std::uint64_t dice = rng_.below(100);
  const bool bug_now = child_.order_.bug != KillBug::none && rng_.one_in(kBugEvery);
  if (dice < odds.put) {
    KillOp& op = announce(KillVerb::put, key, 0, 0);
    if (bug_now && child_.order_.bug == KillBug::forget_put) {
      acknowledge(op, Status::ok);
    } else if (child_.order_.bug == KillBug::early_ack) {
      acknowledge(op, Status::ok);
      child_.check(do_put(key, op.value), "put");
    } else {
      acknowledge(op, do_put(key, op.value));
    }
  } else if (dice < odds.put + odds.erase) {
    KillOp& op = announce(KillVerb::erase, key, 0, 0);
    acknowledge(op, child_.store_->erase(kill_key(key)));
  } else {
    do_get(announce(KillVerb::get, key, 0, 0));
  }
}

void KvWork::do_get(KillOp& op) {
  key_text_ = kill_key(op.key);
  const bool in_place = rng_.one_in(2);
  std::string got;
  Status s = Status::ok;
  if (in_place) {
    const Result<View> view = child_.store_->view(key_text_);
    s = view ? Status::ok : view.error();
    if (view) got = view->value();
  } else {
    s = child_.store_->get(key_text_, got);
  }
  if (s != Status::not_found) child_.check(s, "get");
  op.value = s == Status::ok ? kill_version(got) : 0;
  if (s == Status::ok) {
    kill_value(op.key, op.value, text_);
    if (got != text_) child_.fail("a get saw a torn value of key " + key_text_);
  }
  if (remembered_ != nullptr) {
    std::uint64_t& last = remembered_[op.key];
    const std::uint64_t now = op.value;
    if (last != 0 && rng_.one_in(kBugEvery)) op.value = last;
    last = now;
  }
  op.ended = child_.state_.ticket.fetch_add(1);
  op.end.store(KillEnd::done, std::memory_order_release);
}

void KvWork::batch() {
  const std::uint64_t entries = 1 + rng_.below(kKillBatchMax);
  std::set<std::uint32_t> keys;
  // A neighbourhood of keys half of the time, so that leaves are shared, too.
  const bool near = rng_.one_in(2);
  const std::uint32_t from = draw_key();
  for (std::uint32_t tries = 0; keys.size() < entries && tries < 4 * kKillBatchMax; ++tries) {
    keys.insert(near ? (from + tries) % kKillKeys : draw_key());
  }
  const Odds odds = odds_of(child_.order_);
  WriteBatch batch;
  const std::uint32_t number = written_ + 1;
  for (const std::uint32_t key : keys) {
    const bool puts = rng_.below(odds.put + odds.erase) < odds.put;
    KillOp& op = announce(puts ? KillVerb::put : KillVerb::erase, key, 0, number);
    if (puts) {
      kill_value(key, op.value, text_);
      batch.put(kill_key(key), text_);
    } else {
      batch.erase(kill_key(key));
    }
  }
  Status s = Status::ok;
  if (child_.order_.bug == KillBug::torn_batch) {
    for (std::uint32_t i = number - 1; i < written_; ++i) {
      const KillOp& op = log_.op[i];
      const Status one = op.verb == KillVerb::put ? do_put(op.key, op.value)
                                                  : child_.store_->erase(kill_key(op.key));
      if (one != Status::not_found) child_.check(one, "entry");
    }
  } else {
    s = child_.store_->write(batch);
  }
  for (std::uint32_t i = number - 1; i < written_; ++i) acknowledge(log_.op[i], s);
}

}  // namespace tenuto::tool
