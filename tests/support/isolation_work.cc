#include "support/isolation_work.h"

#include <cstdio>
#include <cstring>

namespace tenuto::test {

namespace {

// Ranges of key numbers: lists from 0, registers from kRegisters, the threads' own registers from
// kOwn.
constexpr std::uint32_t kRegisters = 1u << 20;
constexpr std::uint32_t kOwn = 1u << 21;
constexpr std::uint32_t kOwnPerThread = 1u << 10;
constexpr std::uint32_t kGenerations = 40;  // of lists: after the last one the first are used again

std::string name_of(std::uint32_t key) {
  char text[32];
  if (is_list(key)) {
    std::snprintf(text, sizeof text, "list/%06u", key);
  } else {
    std::snprintf(text, sizeof text, "reg/%08u", key);
  }
  return text;
}
std::uint32_t key_of(std::string_view name) {
  const bool list = name.starts_with("list/");
  return static_cast<std::uint32_t>(std::stoul(std::string(name.substr(list ? 5 : 4))));
}
bool is_filler(std::string_view name) { return name.find('+') != name.npos; }

std::string text_of(const std::vector<std::uint64_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(std::uint64_t)};
}
std::vector<std::uint64_t> values_of(std::string_view text) {
  std::vector<std::uint64_t> values(text.size() / sizeof(std::uint64_t));
  if (!values.empty()) std::memcpy(values.data(), text.data(), text.size());
  return values;
}

constexpr std::uint64_t kBegun = 1, kCommitted = 2, kAborted = 3;
// Words of a header: how (0: end of the log), begin, end, number of words of ops.
constexpr std::size_t kHeader = 4;

void store(std::uint64_t& word, std::uint64_t v) { __atomic_store_n(&word, v, __ATOMIC_RELEASE); }

}  // namespace

bool is_list(std::uint32_t key) { return key < kRegisters; }

// --- the log -------------------------------------------------------------------------------------

bool TxnLog::begin(std::uint64_t ticket) {
  while (header_ + kHeader < words_.size() && words_[header_] != 0) {
    header_ += kHeader + words_[header_ + 3];
  }
  if (header_ + kHeader + kReserve > words_.size()) return false;
  store(words_[header_ + 1], ticket);
  store(words_[header_ + 3], 0);
  store(words_[header_], kBegun);
  return true;
}

void TxnLog::add(TxnOp::Verb verb, std::uint32_t key, std::uint64_t value) {
  std::uint64_t* to = &words_[header_ + kHeader + words_[header_ + 3]];
  to[0] = static_cast<std::uint64_t>(verb) << 32 | key;
  to[1] = value;
  store(words_[header_ + 3], words_[header_ + 3] + 2);
}

void TxnLog::add(std::uint32_t key, const std::vector<std::uint64_t>& values) {
  std::uint64_t* to = &words_[header_ + kHeader + words_[header_ + 3]];
  to[0] = static_cast<std::uint64_t>(TxnOp::Verb::read_list) << 32 | key;
  to[1] = values.size();
  for (std::size_t i = 0; i < values.size(); ++i) to[2 + i] = values[i];
  store(words_[header_ + 3], words_[header_ + 3] + 2 + values.size());
}

void TxnLog::end(std::uint64_t ticket, Txn::End how) {
  store(words_[header_ + 2], ticket);
  store(words_[header_], how == Txn::End::committed ? kCommitted : kAborted);
}

std::vector<Txn> TxnLog::read(std::uint32_t thread, std::uint64_t crash) const {
  std::vector<Txn> out;
  for (std::size_t at = 0; at + kHeader < words_.size() && words_[at] != 0;) {
    Txn t{thread, words_[at + 1], words_[at + 2], Txn::End::unknown, {}};
    if (words_[at] == kCommitted) t.how = Txn::End::committed;
    if (words_[at] == kAborted) t.how = Txn::End::aborted;
    if (t.how == Txn::End::unknown) t.end = crash;
    const std::uint64_t* op = &words_[at + kHeader];
    const std::uint64_t* const end = op + words_[at + 3];
    while (op < end) {
      TxnOp o{static_cast<TxnOp::Verb>(op[0] >> 32), static_cast<std::uint32_t>(op[0]), op[1], {}};
      if (o.verb == TxnOp::Verb::read_list) {
        o.values.assign(op + 2, op + 2 + op[1]);
        op += op[1];
      }
      op += 2;
      t.ops.push_back(std::move(o));
    }
    at += kHeader + words_[at + 3];
    out.push_back(std::move(t));
  }
  return out;
}

// --- the work ------------------------------------------------------------------------------------

// Moves on to new lists as the old ones get long.
std::uint32_t IsolationWork::any_list() {
  const std::uint64_t written = counter_.load(std::memory_order_relaxed);
  const std::uint64_t base = written / (size_.appends_max * size_.lists) * size_.lists;
  return static_cast<std::uint32_t>((base + below(size_.lists)) % (size_.lists * kGenerations));
}
std::uint32_t IsolationWork::any_register() {
  return kRegisters + static_cast<std::uint32_t>(below(size_.registers));
}
std::uint32_t IsolationWork::any_own(std::uint32_t thread) {
  return kOwn + thread * kOwnPerThread + static_cast<std::uint32_t>(below(size_.own));
}

bool IsolationWork::begin() {
  full_ = !log_.begin(tick());
  return !full_;
}

Status IsolationWork::finish(Status s, bool wrote) {
  const bool lost = s == Status::conflict || s == Status::expired;
  if (s != Status::ok && !lost && wrote) return s;  // its outcome stays unknown
  log_.end(tick(), s == Status::ok ? Txn::End::committed : Txn::End::aborted);
  return lost ? Status::ok : s;
}

Collection IsolationWork::made(const char* name, KeyOrder order) {
  CollectionOptions o;
  o.order = order;
  Result<Collection> c = store_.collection(name, o);
  return c ? std::move(*c) : Collection();  // its calls return closed
}

Collection& IsolationWork::in(std::uint32_t key) {
  return in_[is_list(key) ? 0 : key < kOwn ? 1 : 2];
}

template <class Reader>
Status IsolationWork::read_one(Reader& reader, std::uint32_t key) {
  std::string value;
  return note(reader.get({in(key), name_of(key)}, value), key, value);
}

Status IsolationWork::note(Status s, std::uint32_t key, const std::string& value) {
  if (s != Status::ok && s != Status::not_found) return s;
  if (is_list(key)) {
    log_.add(key, values_of(value));
  } else {
    log_.add(TxnOp::Verb::read, key, value.empty() ? 0 : values_of(value)[0]);
  }
  return Status::ok;
}

// Reads all lists from a random one on. A missing one counts as empty.
Status IsolationWork::walk(Iterator it) {
  const bool backwards = below(2) == 0;
  const std::uint64_t first = below(size_.lists);
  std::vector<std::vector<std::uint64_t>> seen(size_.lists);
  const std::uint32_t base = any_list() / size_.lists * size_.lists;
  const std::uint32_t low = base + static_cast<std::uint32_t>(first);
  const std::string from = name_of(low);
  const std::string end = name_of(base + size_.lists - 1) + "~";
  const bool descending = size_.collections;
  // The end at which the walk begins, and the direction of the collection from there.
  const std::string& start = backwards ? end : from;
  const bool by_next = backwards == descending;
  if (by_next) {
    it.seek(start);
  } else {
    it.seek_for_prev(start);
  }
  while (it.valid() && (backwards ? it.key() >= from : it.key() < end)) {
    if (!is_filler(it.key())) seen[key_of(it.key()) - base] = values_of(it.value());
    if (by_next) {
      it.next();
    } else {
      it.prev();
    }
  }
  if (it.status() != Status::ok) return it.status();
  for (std::uint32_t i = low - base; i < size_.lists; ++i) log_.add(base + i, seen[i]);
  return Status::ok;
}

Status IsolationWork::transaction_step(StoreTransaction& tx) {
  std::string value;
  const std::uint64_t dice = below(12);
  if (dice < 2) return read_one(tx, any_list());
  if (dice < 3) return read_one(tx, any_register());
  if (dice < 4) return read_one(tx, any_own(static_cast<std::uint32_t>(below(thread_ + 1))));
  if (dice < 5) return walk(tx.iterator(in_[0]));
  if (dice < 7) {  // a blind write
    const std::uint32_t key = any_own(thread_);
    const std::uint64_t v = fresh();
    log_.add(TxnOp::Verb::write, key, v);
    return tx.put({in(key), name_of(key)}, text_of({v}));
  }
  const std::uint32_t key = dice < 10 ? any_list() : any_register();
  const bool update = below(4) == 0;
  const Status s = update ? tx.get_for_update({in(key), name_of(key)}, value)
                          : tx.get({in(key), name_of(key)}, value);
  if (s != Status::ok && s != Status::not_found) return s;
  std::vector<std::uint64_t> values = values_of(s == Status::ok ? value : "");
  const std::uint64_t v = fresh();
  if (is_list(key)) {
    log_.add(key, values);
    values.push_back(v);
    log_.add(TxnOp::Verb::append, key, v);
  } else {
    log_.add(TxnOp::Verb::read, key, values.empty() ? 0 : values[0]);
    values = {v};
    log_.add(TxnOp::Verb::write, key, v);
  }
  return tx.put({in(key), name_of(key)}, text_of(values));
}

Status IsolationWork::transaction() {
  if (!begin()) return Status::ok;
  StoreTransaction tx = store_.begin();
  Status s = Status::ok;
  for (std::uint64_t n = 1 + below(5); n > 0 && s == Status::ok; --n) s = transaction_step(tx);
  const bool abort = below(20) == 0;
  if (s == Status::ok) {
    if (abort) tx.rollback();
    s = abort ? Status::conflict : tx.commit();
  }
  return finish(s, true);
}

Status IsolationWork::snapshot() {
  if (!begin()) return Status::ok;
  Result<Snapshot> snap = store_.snapshot();
  if (!snap) return finish(snap.error(), false);
  Status s = Status::ok;
  for (std::uint64_t n = 1 + below(5); n > 0 && s == Status::ok; --n) {
    const std::uint64_t dice = below(4);
    s = dice == 0   ? walk(snap->iterator(in_[0]))
        : dice == 1 ? read_one(*snap, any_own(static_cast<std::uint32_t>(below(thread_ + 1))))
        : dice == 2 ? read_one(*snap, any_register())
                    : read_one(*snap, any_list());
  }
  return finish(s, false);
}

Status IsolationWork::single() {
  if (!begin()) return Status::ok;
  if (below(2) == 0) {
    const std::uint32_t key = below(2) == 0 ? any_list() : any_register();
    std::string value;
    return finish(note(in(key).get(name_of(key), value), key, value), false);
  }
  const std::uint32_t key = any_own(thread_);
  const std::uint64_t v = fresh();
  log_.add(TxnOp::Verb::write, key, v);
  return finish(in(key).put(name_of(key), text_of({v})), true);
}

Status IsolationWork::batch() {
  if (!begin()) return Status::ok;
  WriteBatch b;
  for (std::uint32_t i = 0; i < size_.own; ++i) {
    const std::uint32_t key = kOwn + thread_ * kOwnPerThread + i;
    const std::uint64_t v = fresh();
    log_.add(TxnOp::Verb::write, key, v);
    b.put({in(key), name_of(key)}, text_of({v}));
  }
  return finish(store_.write(b), true);
}

Status IsolationWork::filler() {
  const std::uint32_t key = below(2) == 0 ? any_list() : any_own(thread_);
  const std::uint64_t from = below(4) * size_.fillers / 4;
  const bool put = below(2) == 0;
  for (std::uint64_t i = from; i < from + size_.fillers / 2; ++i) {
    char tail[16];
    std::snprintf(tail, sizeof tail, "+%03u/%u", static_cast<unsigned>(i), thread_);
    const std::string name = name_of(key) + tail;
    const Status s = put ? in(key).put(name, "filler") : in(key).erase(name);
    if (s != Status::ok && s != Status::not_found) return s;
  }
  return Status::ok;
}

Status IsolationWork::step() {
  const std::uint64_t dice = below(20);
  if (dice < 10) return transaction();
  if (dice < 13) return snapshot();
  if (dice < 16) return single();
  if (dice < 18) return batch();
  return size_.fillers == 0 ? transaction() : filler();
}

Status IsolationWork::read_all() {
  if (!begin()) return Status::full;
  StoreTransaction tx = store_.begin();
  for (const Collection& c : in_) {
    if (&c != in_ && !size_.collections) break;  // both are the same collection
    Iterator it = tx.iterator(c);
    for (it.seek_first(); it.valid(); it.next()) {
      if (is_filler(it.key())) continue;
      TENUTO_TRY(note(Status::ok, key_of(it.key()), std::string(it.value())));
    }
    TENUTO_TRY(it.status());
  }
  return finish(tx.commit(), false);
}

void IsolationWork::set_orders(std::span<const std::vector<Txn>> by_thread, IsolationSize size,
                               IsolationHistory& history) {
  for (std::uint32_t t = 0; t < by_thread.size(); ++t) {
    for (std::uint32_t i = 0; i < size.own; ++i) {
      const std::uint32_t key = kOwn + t * kOwnPerThread + i;
      std::vector<std::uint64_t> order;
      for (const Txn& txn : by_thread[t]) {
        if (txn.how == Txn::End::aborted) continue;
        for (const TxnOp& op : txn.ops) {
          if (op.verb == TxnOp::Verb::write && op.key == key) order.push_back(op.value);
        }
      }
      history.set_order(key, order);
    }
  }
}

}  // namespace tenuto::test
