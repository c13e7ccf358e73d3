#include "powercut/workers.h"

#include <chrono>
#include <cstdlib>
#include <new>

namespace tenuto::powercut {

namespace {

constexpr std::uint64_t kSyncEvery = 150;  // operations of the buffered thread between two syncs
constexpr std::uint64_t kRestEvery = 8;    // operations between pauses of the other threads
constexpr auto kRest = std::chrono::milliseconds(1);

}  // namespace

Workers::Workers(Store& store, Objects& objects, Models& models, std::uint64_t life, Wire& wire)
    : store_(store), objects_(objects), models_(models), life_(life), wire_(wire) {
  const Progress begin = models.done();
  for (unsigned t = 0; t < kThreads; ++t) done_[t] = begin[t];
}

void Workers::start() {
  for (unsigned t = 0; t < kThreads; ++t) {
    threads_.emplace_back([this, t] { t < kKeyThreads ? write_keys(t) : change_objects(t); });
  }
}

void Workers::stop() {
  stopping_ = true;
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

Progress Workers::done() const {
  Progress p{};
  for (unsigned t = 0; t < kThreads; ++t) p[t] = done_[t].load();
  return p;
}

void Workers::failed(unsigned thread, std::uint64_t op, Status s) {
  Report report;
  static_cast<void>(store_.pool().health(&report));
  wire_.say("W thread " + std::to_string(thread) + ", operation " + std::to_string(op) +
            " failed: " + status_name(s) + " " + report.text());
  wire_.drain();
  std::_Exit(1);
}

void Workers::returned(unsigned thread, std::uint64_t op, bool durable) {
  done_[thread].store(op);
  if (durable) wire_.say("A " + std::to_string(thread) + " " + std::to_string(op));
  const bool rests = thread != kSyncThread && op % kRestEvery == 0;
  if (rests) std::this_thread::sleep_for(kRest);
}

// --- keys ----------------------------------------------------------------------------------------

void Workers::write_keys(unsigned thread) {
  KeyModel& model = models_.keys[thread];
  while (!stopping_) {
    const KeyOp op = model.next(life_);
    const Status s = apply(thread, op, done());
    if (s != Status::ok) failed(thread, op.number, s);
    returned(thread, op.number, op.sync);
    if (thread == kBufferedThread && op.number % kSyncEvery == 0) sync_all();
  }
}

Status Workers::apply(unsigned thread, const KeyOp& op, const Progress& before) {
  const WriteOptions how{op.sync ? Durability::sync : Durability::buffered};
  const Stamp stamp{op.number, life_};
  const auto value = [&](unsigned key) { return value_of(thread, key, stamp, before); };
  if (op.changes.size() == 1) {
    const KeyOp::Change c = op.changes[0];
    if (c.erase) return store_.erase(key_of(thread, c.key), how);
    return store_.put(key_of(thread, c.key), value(c.key), how);
  }
  WriteBatch batch;
  for (const KeyOp::Change& c : op.changes) {
    if (c.erase) {
      batch.erase(key_of(thread, c.key));
    } else {
      batch.put(key_of(thread, c.key), value(c.key));
    }
  }
  return store_.write(batch, how);
}

void Workers::sync_all() {
  const Progress before = done();
  if (const Status s = store_.sync(); s != Status::ok) failed(kBufferedThread, 0, s);
  for (unsigned t = 0; t < kThreads; ++t) {
    wire_.say("A " + std::to_string(t) + " " + std::to_string(before[t]));
  }
}

// --- objects -------------------------------------------------------------------------------------

void Workers::change_objects(unsigned thread) {
  ObjectModel& model = models_.objects[thread - kKeyThreads];
  while (!stopping_) {
    const ObjectOp op = model.next(life_);
    const Progress before = done();
    Status s = op.abort_first ? transaction(thread, op, before, true) : Status::ok;
    if (s == Status::ok) s = transaction(thread, op, before, false);
    if (s != Status::ok) failed(thread, op.number, s);
    returned(thread, op.number, op.sync);
  }
}

Status Workers::transaction(unsigned thread, const ObjectOp& op, const Progress& before,
                            bool abort) {
  ThreadObjects& own = objects_.thread[thread - kKeyThreads];
  const Stamp stamp{op.number, life_};
  Transaction tx(store_.pool());
  TENUTO_TRY(tx.status());
  TENUTO_TRY(tx.lock(accounts_mu_));
  TENUTO_TRY(tx.add_later(own));
  TENUTO_TRY(tx.add_later(objects_.account[op.from]));
  TENUTO_TRY(tx.add_later(objects_.account[op.to]));
  TENUTO_TRY(tx.ready());
  own.last = stamp;
  own.before = before;
  for (const unsigned c : op.cell) own.cell[c] = op.number;
  objects_.account[op.from] -= op.amount;
  objects_.account[op.to] += op.amount;
  if (op.new_note) {
    if (own.note) TENUTO_TRY(tx.destroy(own.note.get()));
    auto block = tx.alloc(sizeof(Note) + op.note_words * 8);
    if (!block) return block.error();
    Note* const note = new (*block) Note{stamp, op.note_words};
    for (std::uint64_t i = 0; i < op.note_words; ++i) *note->at(i) = note->filling(i);
    own.note = note;
  }
  if (abort) {
    tx.abort();
    return Status::ok;
  }
  return tx.commit(op.sync ? Durability::sync : Durability::buffered);
}

}  // namespace tenuto::powercut
