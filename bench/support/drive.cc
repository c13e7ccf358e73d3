// The timed loop and the sweep; see drive.h. A latency is the time from one completion to the next,
// so each operation needs only one clock reading. It includes the check of the value. The engine
// `null` shows the client's own share.
#include "bench/support/drive.h"

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "bench/support/clock.h"

namespace bench {
namespace {

void note_failure(PhaseResult& r, const char* what, std::string_view key) {
  if (r.failures++ > 0) return;
  std::string readable;
  for (const char c : key.substr(0, 64)) {
    char hex[8];
    const auto byte = static_cast<unsigned char>(c);
    std::snprintf(hex, sizeof hex, byte >= 0x20 && byte < 0x7f ? "%c" : "\\x%02x", byte);
    readable += hex;
  }
  std::snprintf(r.first_failure, sizeof r.first_failure, "%s, key %s", what, readable.c_str());
}

// One thread of the benchmark.
class Client final : public Sink {
 public:
  Client(Session& session, const Records& records, const Phase& phase, unsigned thread)
      : session_(session),
        records_(records),
        phase_(phase),
        thread_(thread),
        group_(group_of(phase.workload)),
        values_(group_ * records.value_bytes_max()) {}

  void run(std::atomic<std::uint64_t>* progress) {
    const Stream& stream = phase_.streams[thread_];
    const char* key_at = stream.keys.data();
    started = ticks();
    std::uint64_t last = started;
    for (std::size_t i = 0; i < stream.ops.size();) {
      const auto ops = std::span(stream.ops).subspan(i, std::min(group_, stream.ops.size() - i));
      if (group_ == 1) {
        run_one(ops.front(), {key_at, ops.front().key_bytes});
      } else {
        run_group(ops, key_at);
      }
      const std::uint64_t now = ticks();
      // An operation takes as long as its group.
      for (const Op& op : ops) {
        result.by_kind[static_cast<std::size_t>(op.kind)].record(now - last);
        key_at += op.key_bytes;
      }
      last = now;
      i += ops.size();
      result.ops = i;
      if (progress != nullptr) progress->store(result.ops, std::memory_order_release);
    }
    ended = last;
  }

  void take(std::string_view key, std::string_view value) override {
    std::uint32_t version = 0;
    if (!records_.check_value(key, value, version)) note_failure(result, "scan: bad value", key);
    const bool first = previous_.empty();
    if (first ? key != scan_from_ : key <= previous_) {
      note_failure(result, first ? "scan: start is missing" : "scan: out of order", key);
    }
    previous_.assign(key);
    ++result.scanned;
  }

  PhaseResult result;
  std::uint64_t started = 0;
  std::uint64_t ended = 0;

 private:
  void run_one(const Op& op, std::string_view key) {
    switch (op.kind) {
      case OpKind::read:
        return read(op, key);
      case OpKind::rmw:
        read(op, key);
        return write(op, key);
      case OpKind::update:
      case OpKind::insert:
        return write(op, key);
      case OpKind::erase:
        if (!session_.erase(key)) note_failure(result, "erase: not there", key);
        return;
      case OpKind::scan:
        scan_from_ = key;
        previous_.clear();
        if (session_.scan(key, op.scan_count, *this) == 0) {
          note_failure(result, "scan: nothing found", key);
        }
        return;
    }
  }
  // `key_at`: the keys of the operations, one after the other.
  void run_group(std::span<const Op> ops, const char* key_at) {
    keys_.clear();
    for (const Op& op : ops) {
      keys_.emplace_back(key_at, op.key_bytes);
      key_at += op.key_bytes;
    }
    ops.front().kind == OpKind::read ? read_group(ops) : write_group(ops);
  }
  void read(const Op& op, std::string_view key) {
    std::string_view value;
    if (!session_.read(key, value)) return note_failure(result, "read: not found", key);
    check(op, key, value);
    session_.release();
  }
  void read_group(std::span<const Op> ops) {
    std::size_t found = 0;
    session_.read_group(keys_, [&](std::size_t i, std::string_view value) {
      ++found;
      check(ops[i], keys_[i], value);
    });
    if (found != ops.size()) note_failure(result, "read: not all found", keys_.front());
  }
  void check(const Op& op, std::string_view key, std::string_view value) {
    std::uint32_t version = 0;
    if (!records_.check_value(key, value, version)) {
      note_failure(result, "read: bad value", key);
    } else if (!phase_.acceptable(version, op.expect, thread_)) {
      note_failure(result, "read: stale or foreign version", key);
    }
  }
  // `place`: in its group.
  std::string_view make_value(const Op& op, std::string_view key, std::size_t place = 0) {
    char* const at = values_.data() + place * records_.value_bytes_max();
    return {at, records_.make_value(op.record, key, op.version, at)};
  }
  void write(const Op& op, std::string_view key) {
    if (!session_.write(key, make_value(op, key))) note_failure(result, "write: refused", key);
  }
  void write_group(std::span<const Op> ops) {
    group_records_.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      group_records_.push_back({keys_[i], make_value(ops[i], keys_[i], i)});
    }
    if (!session_.write_group(group_records_))
      note_failure(result, "write: refused", keys_.front());
  }

  Session& session_;
  const Records& records_;
  const Phase& phase_;
  unsigned thread_;
  const std::size_t group_;
  std::vector<char> values_;  // of a group
  std::vector<std::string_view> keys_;
  std::vector<KeyAndValue> group_records_;
  std::string_view scan_from_;
  std::string previous_;
};

class SweepSink final : public Sink {
 public:
  SweepSink(const Records& records, const Expected& expected, PhaseResult& result)
      : records_(records), expected_(expected), result_(result) {}

  void take(std::string_view key, std::string_view value) override {
    ++seen;
    if (seen > 1 && key <= previous_) note_failure(result_, "sweep: out of order", key);
    previous_.assign(key);
    std::uint32_t version = 0;
    const std::optional<std::uint64_t> record = records_.record_of(key);
    if (!record || !expected_.is_live(*record)) {
      note_failure(result_, "sweep: a record that should not be there", key);
    } else if (!records_.check_value(key, value, version)) {
      note_failure(result_, "sweep: bad value", key);
    } else if (!expected_.allows(*record, version)) {
      note_failure(result_, "sweep: stale version", key);
    }
  }

  std::uint64_t seen = 0;

 private:
  const Records& records_;
  const Expected& expected_;
  PhaseResult& result_;
  std::string previous_;
};

class LatestSink final : public Sink {
 public:
  explicit LatestSink(const Records& records) : records_(records) {}

  void take(std::string_view key, std::string_view value) override {
    std::uint32_t version = 0;
    if (records_.check_value(key, value, version)) latest = std::max(latest, version);
  }

  std::uint32_t latest = 0;

 private:
  const Records& records_;
};

void add_client(const Client& c, PhaseResult& into) {
  into.ops += c.result.ops;
  into.scanned += c.result.scanned;
  if (into.failures == 0 && c.result.failures > 0) {
    std::memcpy(into.first_failure, c.result.first_failure, sizeof into.first_failure);
  }
  into.failures += c.result.failures;
  for (std::size_t k = 0; k < kOpKinds; ++k) into.by_kind[k].merge(c.result.by_kind[k]);
}

}  // namespace

void drive(Engine& engine, const Records& records, const Phase& phase, bool trusting,
           PhaseResult& result, std::atomic<std::uint64_t>* progress) {
  const std::size_t threads = phase.streams.size();
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<std::unique_ptr<Client>> clients;
  for (unsigned t = 0; t < threads; ++t) {
    sessions.push_back(engine.session());
    clients.push_back(std::make_unique<Client>(*sessions.back(), records, phase, t));
  }
  std::barrier start(static_cast<std::ptrdiff_t>(threads));
  std::vector<std::thread> running;
  for (unsigned t = 1; t < threads; ++t) {
    running.emplace_back([&, t] {
      start.arrive_and_wait();
      clients[t]->run(nullptr);
    });
  }
  start.arrive_and_wait();
  clients[0]->run(progress);
  for (std::thread& t : running) t.join();

  std::uint64_t begin = ~std::uint64_t{0};
  std::uint64_t end = 0;
  for (const auto& c : clients) {
    begin = std::min(begin, c->started);
    end = std::max(end, c->ended);
    add_client(*c, result);
  }
  result.seconds = seconds_of(end - begin);
  result.ran = true;
  if (result.ops != phase.ops()) note_failure(result, "operations went missing", "");
  if (trusting) result.failures = 0;
}

void sweep(Engine& engine, const Records& records, const Expected& expected, PhaseResult& result) {
  const std::unique_ptr<Session> session = engine.session();
  SweepSink sink(records, expected, result);
  session->scan("", ~std::uint64_t{0}, sink);
  if (sink.seen == expected.live()) return;
  char what[96];
  std::snprintf(what, sizeof what, "sweep: %llu records where %llu should be",
                static_cast<unsigned long long>(sink.seen),
                static_cast<unsigned long long>(expected.live()));
  note_failure(result, what, "");
}

std::uint32_t latest_version(Engine& engine, const Records& records) {
  const std::unique_ptr<Session> session = engine.session();
  LatestSink sink(records);
  session->scan("", ~std::uint64_t{0}, sink);
  return sink.latest;
}

}  // namespace bench
