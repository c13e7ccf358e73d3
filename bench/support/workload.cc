// Makes the operation streams and their expected results; see workload.h.
#include "bench/support/workload.h"

#include <algorithm>
#include <array>

#include "bench/support/zipf.h"

namespace bench {
namespace {

template <class Enum, std::size_t kCount>
std::optional<Enum> find_name(const std::array<const char*, kCount>& names, std::string_view name) {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

constexpr std::array kWorkloadNames = {
    "load",        "a",    "b",      "c",           "d",
    "e",           "f",    "e-cold", "e-warm",      "insert-delete",
    "sync-insert", "open", "update", "update-x100", "get-x16"};
constexpr std::array kDistributionNames = {"zipfian", "uniform", "latest"};
constexpr std::array kOpNames = {"read", "update", "insert", "scan", "rmw", "erase"};

// Chooses a record by its index into: all records that existed, then those this thread inserted
// since. A thread does not rely on other threads' inserts of the same phase, which may not be done
// yet.
class Chooser {
 public:
  Chooser(Distribution distribution, std::uint64_t existing, std::uint64_t inserts_expected)
      : distribution_(distribution),
        latest_(distribution == Distribution::latest ? existing : 2),
        // As in YCSB: room for twice the inserts; a draw beyond the end is repeated.
        scrambled_(existing + 2 * inserts_expected) {}

  std::uint64_t next(Rng& rng, std::uint64_t count) {
    if (distribution_ == Distribution::uniform) return rng.below(count);
    if (distribution_ == Distribution::latest) return latest_.next(rng, count);
    std::uint64_t index = scrambled_.next(rng);
    while (index >= count) index = scrambled_.next(rng);
    return index;
  }

 private:
  Distribution distribution_;
  Latest latest_;
  ScrambledZipfian scrambled_;
};

OpKind draw(const Mix& mix, Rng& rng) {
  double at = rng.unit();
  for (std::size_t i = 0; i < kOpKinds; ++i) {
    if (at < mix.share[i]) return static_cast<OpKind>(i);
    at -= mix.share[i];
  }
  return OpKind::read;
}

}  // namespace

const char* op_name(OpKind kind) { return kOpNames[static_cast<std::size_t>(kind)]; }
const char* workload_name(Workload w) { return kWorkloadNames[static_cast<std::size_t>(w)]; }
std::optional<Workload> find_workload(std::string_view name) {
  return find_name<Workload>(kWorkloadNames, name);
}
const char* distribution_name(Distribution d) {
  return kDistributionNames[static_cast<std::size_t>(d)];
}
std::optional<Distribution> find_distribution(std::string_view name) {
  return find_name<Distribution>(kDistributionNames, name);
}

Mix mix_of(Workload workload) {
  switch (workload) {  //        read update insert scan  rmw   erase
    case Workload::a:
      return {{0.5, 0.5, 0, 0, 0, 0}};
    case Workload::b:
      return {{0.95, 0.05, 0, 0, 0, 0}};
    case Workload::c:
    case Workload::get_x16:
      return {{1, 0, 0, 0, 0, 0}};
    case Workload::d:
      return {{0.95, 0, 0.05, 0, 0, 0}};
    case Workload::e:
    case Workload::e_cold:
    case Workload::e_warm:
      return {{0, 0, 0.05, 0.95, 0, 0}};
    case Workload::f:
      return {{0.5, 0, 0, 0, 0.5, 0}};
    case Workload::insert_delete:
      return {{0, 0, 0.5, 0, 0, 0.5}};
    case Workload::open:
    case Workload::update:
    case Workload::update_x100:
      return {{0, 1, 0, 0, 0, 0}};
    case Workload::load:
    case Workload::sync_insert:
      break;
  }
  return {{0, 0, 1, 0, 0, 0}};
}

std::size_t group_of(Workload workload) {
  if (workload == Workload::update_x100) return kGroupMax;
  return workload == Workload::get_x16 ? 16 : 1;
}

std::uint64_t Phase::ops() const {
  std::uint64_t sum = 0;
  for (const Stream& s : streams) sum += s.ops.size();
  return sum;
}

bool Phase::acceptable(std::uint32_t version, std::uint32_t expect, unsigned thread) const {
  if (version == expect) return true;
  if (streams.size() == 1) return false;
  const bool of_this_phase = sequence_of(version) >= first_sequence;
  const bool mine = writer_of(version) == thread;
  const bool wrote_in_phase = sequence_of(expect) >= first_sequence;
  return wrote_in_phase ? of_this_phase && !mine : !(of_this_phase && mine);
}

Planner::Planner(const Records& records, unsigned threads, std::uint64_t seed)
    : records_(records), threads_(threads), rng_(seed), last_(threads) {}

Phase Planner::begin(Workload workload, Distribution distribution) const {
  Phase phase;
  phase.workload = workload;
  phase.distribution = distribution;
  phase.records_before = existing_.size();
  phase.first_sequence = sequence_;
  phase.streams.resize(threads_);
  return phase;
}

void Planner::add(Stream& stream, unsigned thread, OpKind kind, std::uint32_t record,
                  std::uint8_t scan_count) {
  std::vector<std::uint32_t>& last = last_[thread];
  if (record >= last.size()) last.resize(record + record / 4 + 64);
  Op op;
  op.record = record;
  op.kind = kind;
  op.scan_count = scan_count;
  op.expect = last[record];
  if (kind == OpKind::update || kind == OpKind::insert || kind == OpKind::rmw) {
    const auto place = static_cast<std::uint32_t>(stream.ops.size());
    op.version = make_version(sequence_ + place, thread);
    last[record] = op.version;
  }
  const std::size_t at = stream.keys.size();
  stream.keys.resize(at + records_.key_bytes_max());
  op.key_bytes = static_cast<std::uint16_t>(records_.make_key(record, stream.keys.data() + at));
  stream.keys.resize(at + op.key_bytes);
  stream.ops.push_back(op);
}

// Appends the inserts of all threads in this phase, in turn, to the records all can rely on.
void Planner::finish(const Phase& phase, const std::vector<std::vector<std::uint32_t>>& own) {
  std::size_t longest = 0;
  for (const Stream& s : phase.streams) longest = std::max(longest, s.ops.size());
  sequence_ += static_cast<std::uint32_t>(longest);
  std::size_t most = 0;
  for (const auto& records : own) most = std::max(most, records.size());
  for (std::size_t i = 0; i < most; ++i) {
    for (const auto& records : own) {
      if (i < records.size()) existing_.push_back(records[i]);
    }
  }
  for (const Stream& s : phase.streams) {
    for (const Op& op : s.ops) next_record_ = std::max(next_record_, op.record + 1);
  }
}

Phase Planner::load(std::uint64_t count) {
  Phase phase = begin(Workload::load, Distribution::uniform);
  std::vector<std::vector<std::uint32_t>> own(threads_);
  for (unsigned t = 0; t < threads_; ++t) {
    phase.streams[t].ops.reserve(count / threads_ + 1);
    phase.streams[t].keys.reserve((count / threads_ + 2) * records_.key_bytes_max());
    for (std::uint64_t r = next_record_ + t; r < next_record_ + count; r += threads_) {
      add(phase.streams[t], t, OpKind::insert, static_cast<std::uint32_t>(r));
      own[t].push_back(static_cast<std::uint32_t>(r));
    }
  }
  finish(phase, own);
  return phase;
}

Phase Planner::next(Workload workload, std::uint64_t ops, Distribution distribution) {
  if (workload == Workload::load || workload == Workload::sync_insert) {
    Phase phase = load(ops);
    phase.workload = workload;
    return phase;
  }
  if (workload == Workload::d) distribution = Distribution::latest;
  if (workload == Workload::insert_delete) distribution = Distribution::uniform;
  Phase phase = begin(workload, distribution);
  const Mix mix = mix_of(workload);
  std::vector<std::vector<std::uint32_t>> own(threads_);
  const std::vector<std::uint32_t> before = existing_;
  if (workload == Workload::insert_delete) existing_.clear();
  for (unsigned t = 0; t < threads_; ++t) {
    Stream& stream = phase.streams[t];
    const std::uint64_t share = ops / threads_ + (t < ops % threads_ ? 1 : 0);
    stream.ops.reserve(share);
    stream.keys.reserve((share + 1) * records_.key_bytes_max());
    if (workload == Workload::insert_delete) {
      for (std::size_t i = t; i < before.size(); i += threads_) own[t].push_back(before[i]);
      insert_delete(stream, t, share, own[t]);
      continue;
    }
    const double inserts = mix.share[static_cast<std::size_t>(OpKind::insert)];
    Chooser chooser(distribution, before.size(),
                    static_cast<std::uint64_t>(static_cast<double>(share) * inserts));
    for (std::uint64_t i = 0; i < share; ++i) {
      const OpKind kind = draw(mix, rng_);
      if (kind == OpKind::insert) {
        own[t].push_back(next_record_ + static_cast<std::uint32_t>(own[t].size()) * threads_ + t);
        add(stream, t, kind, own[t].back());
        continue;
      }
      const std::uint64_t at = chooser.next(rng_, before.size() + own[t].size());
      const std::uint32_t record = at < before.size() ? before[at] : own[t][at - before.size()];
      const auto count =
          static_cast<std::uint8_t>(kind == OpKind::scan ? 1 + rng_.below(kScanRecordsMax) : 0);
      add(stream, t, kind, record, count);
    }
  }
  finish(phase, own);
  return phase;
}

// Half inserts of new records, half erases of random records in `live`, the thread's own part of
// all records. So results do not depend on the timing of other threads.
void Planner::insert_delete(Stream& stream, unsigned thread, std::uint64_t ops,
                            std::vector<std::uint32_t>& live) {
  std::uint32_t inserted = 0;
  for (std::uint64_t i = 0; i < ops; ++i) {
    if (live.empty() || rng_.below(2) == 0) {
      live.push_back(next_record_ + inserted++ * threads_ + thread);
      add(stream, thread, OpKind::insert, live.back());
    } else {
      std::swap(live[rng_.below(live.size())], live.back());
      add(stream, thread, OpKind::erase, live.back());
      live.pop_back();
    }
  }
}

void Expected::set(unsigned thread, std::uint32_t record, std::uint32_t version) {
  if (record >= is_live_.size()) is_live_.resize(record + record / 4 + 64);
  for (auto& last : last_) {
    if (record >= last.size()) last.resize(is_live_.size());
  }
  last_[thread][record] = version;
  const bool now = version != 0;
  if (is_live_[record] != now) live_ += now ? 1 : std::uint64_t{0} - 1;
  is_live_[record] = now;
}

void Expected::apply(const Phase& phase) {
  in_flight_.reset();
  const auto writes = [](const Op& op) {
    return op.kind != OpKind::read && op.kind != OpKind::scan;
  };
  // A phase's writes replace all earlier phases' writes to the same record.
  for (const Stream& s : phase.streams) {
    for (const Op& op : s.ops) {
      if (!writes(op)) continue;
      for (auto& last : last_) {
        if (op.record < last.size()) last[op.record] = 0;
      }
    }
  }
  for (unsigned t = 0; t < phase.streams.size(); ++t) {
    for (const Op& op : phase.streams[t].ops) {
      if (writes(op)) set(t, op.record, op.version);
    }
  }
}

void Expected::apply_prefix(const Phase& phase, std::uint64_t done) {
  const std::vector<Op>& ops = phase.streams.front().ops;
  for (std::uint64_t i = 0; i < done && i < ops.size(); ++i) {
    if (ops[i].version != 0) set(0, ops[i].record, ops[i].version);
  }
  in_flight_.reset();
  if (done < ops.size()) in_flight_ = ops[done];
}

void Expected::apply_until(const Phase& phase, std::uint32_t latest) {
  for (const Op& op : phase.streams.front().ops) {
    if (op.version != 0 && op.version <= latest) set(0, op.record, op.version);
  }
  in_flight_.reset();
}

bool Expected::is_live(std::uint64_t record) const {
  return record < is_live_.size() && is_live_[record];
}

bool Expected::allows(std::uint64_t record, std::uint32_t version) const {
  if (!is_live(record) || version == 0) return false;
  if (in_flight_ && in_flight_->record == record && in_flight_->version == version) return true;
  return std::any_of(last_.begin(), last_.end(), [&](const auto& last) {
    return record < last.size() && last[record] == version;
  });
}

}  // namespace bench
