// Judges what a damaged copy returns, call by call.
#include <algorithm>
#include <map>
#include <optional>

#include "support/damaged_pool.h"
#include "tenuto/rescue.h"
#include "tenuto/snapshot.h"
#include "tenuto/transaction.h"

namespace tenuto::test {
namespace {

// One session with the damaged copy.
class Session {
 public:
  Session(const DamageBase& base, const Bytes& damaged, const std::string& path) : path_(path) {
    lay_out(base, damaged, path);
    auto opened = Store::open(path, damaged_pool_options(), &report_);
    if (opened) {
      store_.emplace(std::move(*opened));
    } else {
      reported_ = true;
      if (report_.what.empty()) wrong_ = "open fails without a report";
    }
  }

  static void lay_out(const DamageBase& base, const Bytes& b, const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && ::ftruncate(fd, static_cast<off_t>(b.size())) == 0;
    for (std::size_t i = 0; ok && i < base.pages.size(); ++i) {
      ok = ::pwrite(fd, &b[base.pages[i]], kFrameBytes, static_cast<off_t>(base.pages[i])) ==
           static_cast<ssize_t>(kFrameBytes);
    }
    ::close(fd);
    if (!ok) std::abort();
  }

  bool open() const { return store_.has_value(); }
  Store& store() { return *store_; }
  bool reported() const { return reported_; }
  const std::string& wrong() const { return wrong_; }
  const Report& report() const { return report_; }

  // Checks that a call returned `wanted`, or reported damage. Returns false if it reported damage.
  bool expect(Status s, Status wanted, const char* call, std::string_view about = {}) {
    if (s == wanted) return true;
    if (s == Status::corrupt || (s == Status::read_only && reported_)) {
      reported_ = true;
    } else {
      offence(std::string(call) + " says " + status_name(s), about);
    }
    return false;
  }
  void offence(std::string what, std::string_view about = {}) {
    if (!wrong_.empty()) return;
    wrong_ = std::move(what);
    if (!about.empty()) wrong_ += " (" + std::string(about.substr(0, 90)) + ")";
  }

 private:
  const std::string path_;
  std::optional<Store> store_;
  Report report_;
  bool reported_ = false;
  std::string wrong_;
};

// What each way of reading returned.
struct Reads {
  bool points = false;  // some lookup reported damage
  bool walks = false;   // every walk over some collection reported damage
};

void read_points(Session& s, const Collection& c, const Shown& shown) {
  std::string value;
  std::string_view last;
  for (std::size_t i = 0; i < shown.pairs.size(); ++i) {
    const auto& [key, expected] = shown.pairs[i];
    if (i > 0 && key == last) continue;  // a get returns the first of duplicates
    last = key;
    if (s.expect(c.get(key, value), Status::ok, "get", key) && value != expected) {
      s.offence("get gives another value", key);
    }
    s.expect(c.contains(key), Status::ok, "contains", key);
    if (shown.options.order == KeyOrder::u64) continue;
    s.expect(c.get(key + "~", value), Status::not_found, "get of what is not there", key);
  }
}

// Walks over all records. Returns whether the walk reported damage.
bool walk(Session& s, Iterator it, const Shown& shown, bool forward, const char* name) {
  const std::size_t n = shown.pairs.size();
  std::size_t seen = 0;
  forward ? it.seek_first() : it.seek_last();
  for (; it.valid(); ++seen) {
    if (seen == n) {
      s.offence(std::string(name) + " shows too much", it.key());
      return false;
    }
    const auto& [key, value] = shown.pairs[forward ? seen : n - 1 - seen];
    if (it.key() != key || it.value() != value) {
      s.offence(std::string(name) + " shows another record", key);
      return false;
    }
    forward ? it.next() : it.prev();
  }
  if (!s.expect(it.status(), Status::ok, name)) return true;
  if (seen != n) s.offence(std::string(name) + " ends early", shown.pairs[seen].first);
  return false;
}

void seek_about(Session& s, const Collection& c, const Shown& shown) {
  Iterator it = c.iterator();
  for (std::size_t i = 0; i < shown.pairs.size(); i += 5) {
    const auto& [key, value] = shown.pairs[i];
    if (i > 0 && shown.pairs[i - 1].first == key) continue;
    it.seek(key);
    if (!s.expect(it.status(), Status::ok, "seek", key)) continue;
    if (!it.valid() || it.key() != key || it.value() != value) s.offence("seek misses", key);
    if (!it.valid() || i == 0) continue;
    it.prev();
    if (!s.expect(it.status(), Status::ok, "prev", key)) continue;
    if (!it.valid() || it.key() != shown.pairs[i - 1].first) s.offence("prev skips", key);
  }
}

Reads read_all(Session& s, const std::vector<Shown>& world) {
  Reads reads;
  std::string value;
  const auto snapshot = s.store().snapshot();
  StoreTransaction tx = s.store().begin();
  for (const Shown& shown : world) {
    Report report;
    const auto c = collection_of(s.store(), shown, &report);
    if (!s.expect(c ? Status::ok : c.error(), Status::ok, "collection", shown.name)) {
      reads.walks = reads.points = true;
      if (report.what.empty()) s.offence("a collection fails without a report");
      continue;
    }
    const bool before = s.reported();
    read_points(s, *c, shown);
    for (std::size_t i = 0; snapshot && i < shown.pairs.size(); i += 3) {
      s.expect(snapshot->get({*c, shown.pairs[i].first}, value), Status::ok, "get of a snapshot",
               shown.pairs[i].first);
      s.expect(tx.get({*c, shown.pairs[i].first}, value), Status::ok, "get of a transaction",
               shown.pairs[i].first);
    }
    seek_about(s, *c, shown);
    const bool points = !before && s.reported();
    const bool forward = walk(s, c->iterator(), shown, true, "a walk");
    const bool backward = walk(s, c->iterator(), shown, false, "a walk backwards");
    bool past = forward;
    if (snapshot) past = walk(s, snapshot->iterator(*c), shown, true, "a walk of a snapshot");
    const bool own = walk(s, tx.iterator(*c), shown, true, "a walk of a transaction");
    if (forward != backward || forward != past || forward != own) {
      s.offence("walks disagree about damage", shown.name);
    }
    if (points && !forward) s.offence("lookups report damage, walks do not", shown.name);
    reads.points |= points;
    reads.walks |= forward;
  }
  return reads;
}

// The backup must return ok, with a whole copy, or corrupt.
bool back_up(Session& s, const DamageBase& base, const std::string& to) {
  ::unlink(to.c_str());
  PoolOptions small = damaged_pool_options().pool;
  Report report;
  if (!s.expect(s.store().backup(to, small, &report), Status::ok, "backup")) {
    if (report.what.empty()) s.offence("a backup fails without a report");
    return true;
  }
  {
    auto copy = Store::open(to, damaged_pool_options(), &report);
    if (!copy) {
      s.offence("a backup cannot be opened");
    } else if (world_of(*copy) != base.world) {
      s.offence("a backup that says ok is not what was there");
    }
  }
  ::unlink(to.c_str());
  return false;
}

// What validate and compact returned.
struct Verdict {
  bool given = false;
  bool sound = true;
  bool compacted = true;
};

std::string validate(Session& s, Verdict& verdict) {
  Report report;
  verdict.given = true;
  verdict.sound = s.expect(s.store().validate(&report), Status::ok, "validate");
  if (!verdict.sound && report.where.empty()) return "validate does not say where";
  return s.wrong();
}

std::string compact(Session& s, const DamageBase& base, Verdict& verdict) {
  Report report;
  CompactOptions all;
  all.occupancy = 1;
  const auto c = s.store().compact(all, &report);
  verdict.compacted = s.expect(c ? Status::ok : c.error(), Status::ok, "compact");
  if (!verdict.compacted && report.what.empty()) return "a compaction fails without a report";
  if (verdict.compacted && s.wrong().empty()) static_cast<void>(read_all(s, base.world));
  return s.wrong();
}

std::string judge_reads(const DamageBase& base, const Bytes& damaged, const JudgeOptions& how,
                        bool& unopened, Reads& reads, bool& backup, Verdict& verdict) {
  Session s(base, damaged, how.path);
  unopened = !s.open();
  if (!s.open()) return s.wrong();
  reads = read_all(s, base.world);
  if (s.wrong().empty()) backup = back_up(s, base, how.path + "-backup");
  if (!s.wrong().empty() || s.reported() || how.apart) return s.wrong();
  // Reads found nothing and changed nothing.
  if (std::string wrong = validate(s, verdict); !wrong.empty() || !verdict.sound) return wrong;
  return compact(s, base, verdict);
}

// What a store must show after some of its records were written over.
struct Written {
  const Shown* shown;
  std::map<std::string, std::optional<std::string>> keys;  // no value: erased
};

void read_written(Session& s, Store& store, const std::vector<Written>& all) {
  std::string value;
  for (const Written& w : all) {
    const auto c = collection_of(store, *w.shown, nullptr);
    if (!s.expect(c ? Status::ok : c.error(), Status::ok, "collection after writes")) continue;
    for (const auto& [key, expected] : w.keys) {
      const Status wanted = expected ? Status::ok : Status::not_found;
      if (s.expect(c->get(key, value), wanted, "get after writes", key) && expected &&
          value != *expected) {
        s.offence("get after writes gives another value", key);
      }
    }
  }
}

Written write_some(Session& s, Collection& c, const Shown& shown) {
  Written w{&shown, {}};
  for (auto at = shown.pairs.rbegin(); at != shown.pairs.rend(); ++at) {
    w.keys[at->first] = at->second;
  }
  std::vector<std::string> keys;
  for (const auto& [key, value] : w.keys) keys.push_back(key);
  const auto put = [&](const std::string& key) {
    if (s.reported() || !s.expect(c.put(key, "new"), Status::ok, "put", key)) return;
    w.keys[key] = "new";
  };
  for (std::size_t i = 0; i < keys.size() && !s.reported(); ++i) {
    std::string beside = keys[i];
    if (shown.options.order == KeyOrder::u64) {
      beside.back() = static_cast<char>(beside.back() ^ 1);
    } else {
      beside += '!';
    }
    put(beside);
    if (i % 6 == 0 && !shown.options.duplicates) put(keys[i]);
    if (i % 6 == 3 && !s.reported() && s.expect(c.erase(keys[i]), Status::ok, "erase", keys[i])) {
      w.keys[keys[i]] = std::nullopt;
    }
  }
  return w;
}

// Writes that split every leaf. Then every record is there or reported, also after another open.
std::string judge_writes(const DamageBase& base, const Bytes& damaged, const JudgeOptions& how) {
  Session s(base, damaged, how.path);
  if (!s.open()) return s.wrong();
  std::vector<Written> all;
  for (const Shown& shown : base.world) {
    auto c = collection_of(s.store(), shown, nullptr);
    if (!s.expect(c ? Status::ok : c.error(), Status::ok, "collection")) continue;
    all.push_back(write_some(s, *c, shown));
  }
  read_written(s, s.store(), all);
  const bool clean = s.store().close() == Status::ok;
  if (!s.wrong().empty()) return s.wrong();
  Report report;
  auto again = Store::open(how.path, damaged_pool_options(), &report);
  if (!again) return again.error() == Status::corrupt ? "" : "after writes open fails otherwise";
  const bool sound = again->validate(&report) == Status::ok;
  read_written(s, *again, all);
  if (s.reported() && sound && clean && s.wrong().empty()) {
    return "after writes damage was reported, and validate says ok";
  }
  return s.wrong();
}

std::string judge_compact(const DamageBase& base, const Bytes& damaged, const JudgeOptions& how,
                          Verdict& verdict) {
  if (!verdict.given) {
    Session s(base, damaged, how.path);
    if (!s.open()) return s.wrong();
    if (std::string wrong = validate(s, verdict); !wrong.empty()) return wrong;
  }
  Session s(base, damaged, how.path);
  return s.open() ? compact(s, base, verdict) : s.wrong();
}

std::string judge_rescue(const DamageBase& base, const Bytes& damaged, const JudgeOptions& how) {
  Session::lay_out(base, damaged, how.path);
  const std::string fresh = how.path + "-rescued";
  ::unlink(fresh.c_str());
  RescueOptions o;
  o.pool = damaged_pool_options().pool;
  RescueResult result;
  Report report;
  const Status s = rescue(how.path, fresh, o, result, &report);
  std::string wrong;
  if (s != Status::ok) {
    if (report.what.empty()) wrong = "a rescue that failed without a report";
  } else {
    auto made = Store::open(fresh, damaged_pool_options(), &report);
    if (!made || world_of(*made) != base.world) {
      wrong = "a rescue says that nothing is lost, and something is";
    }
  }
  ::unlink(fresh.c_str());
  return wrong;
}

}  // namespace

std::string judge_damage(const DamageBase& base, const Bytes& damaged, const JudgeOptions& how) {
  bool unopened = false;
  bool backup = false;
  Reads reads;
  Verdict verdict;
  std::string wrong = judge_reads(base, damaged, how, unopened, reads, backup, verdict);
  if (wrong.empty() && how.rescue) wrong = judge_rescue(base, damaged, how);
  if (!wrong.empty() || unopened) return wrong;
  if (!verdict.given || !verdict.sound) wrong = judge_compact(base, damaged, how, verdict);
  if (wrong.empty() && how.writes) wrong = judge_writes(base, damaged, how);
  if (!wrong.empty()) return wrong;
  const bool read = reads.points || reads.walks;
  if (read && verdict.sound) return "reads report damage, validate does not";
  if (read && !backup) return "reads report damage, backup does not";
  if (read && verdict.compacted) return "reads report damage, compact does not";
  if (!verdict.compacted && verdict.sound) return "compact reports damage, validate does not";
  return {};
}

}  // namespace tenuto::test
