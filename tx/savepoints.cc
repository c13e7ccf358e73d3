#include "tx/savepoints.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <utility>

#include "pm/metadata_key.h"
#include "pm/plant.h"
#include "tx/engine.h"
#include "tx/txn.h"

namespace TENUTO_NS::tx {

namespace {
// A savepoint copies the fields that wait. More are stored first, so that many savepoints in one
// transaction need no more memory for each.
constexpr std::size_t kFieldsCopied = 256;
}  // namespace

const Mark* Savepoints::find(std::uint64_t id) const {
  const auto at =
      std::find_if(marks_.begin(), marks_.end(), [id](const Mark& m) { return m.id == id; });
  return at == marks_.end() ? nullptr : &*at;
}

std::uint64_t Savepoints::add(Mark mark) {
  static std::atomic<std::uint64_t> ids = 0;
  mark.id = ids.fetch_add(1, std::memory_order_relaxed) + 1;
  mark.saved = saved_.size();
  marks_.push_back(std::move(mark));
  since_.clear();
  return marks_.back().id;
}

void Savepoints::save(const std::byte* base, Range r) {
  for (std::uint64_t at = r.begin; at < r.end;) {
    const RangeSet::Answer since = since_.at(at);
    const std::uint64_t end = std::min(since.until, r.end);
    if (!since.inside) {
      since_.make_room();
      make_room_in(saved_);
      const std::size_t first = bytes_.size();
      bytes_.insert(bytes_.end(), base + at, base + end);
      saved_.push_back({at, first});
      since_.insert({at, end});
    }
    at = end;
  }
}

// Copies are kept for older savepoints. A range may then be copied once more: the older copy is the
// last one that is stored back.
void Savepoints::release(std::uint64_t id) {
  const auto at =
      std::find_if(marks_.begin(), marks_.end(), [id](const Mark& m) { return m.id == id; });
  if (at == marks_.end()) return;
  if (marks_.size() == 1) return clear();
  marks_.erase(at);
}

// Gives large memory back, and needs none: it belongs to the end of a transaction.
void Savepoints::clear() {
  if (!any()) return;
  const auto release = [](auto& v) { std::remove_reference_t<decltype(v)>().swap(v); };
  release(marks_);
  release(saved_);
  release(bytes_);
  release(cancelled_);
  since_.clear();
}

// --- in a transaction ----------------------------------------------------------------------------

void Txn::keep_on_abort(const void* p, std::size_t bytes) {
  const std::uint64_t begin = file_.offset_of(p).value;
  kept_.push_back({begin, begin + bytes});
}

Result<std::uint64_t> Txn::savepoint() {
  const pm::MetadataOpen rights;
  if (const Status s = status(); s != Status::ok) return s;
  if (fields_.size() > kFieldsCopied) TENUTO_TRY(ready());
  Mark mark;
  mark.log = log_.size();
  mark.new_blocks = new_blocks_.size();
  mark.cancelled = savepoints_.cancelled();
  mark.freed = freed_.size();
  mark.on_commit = on_commit_.size();
  mark.on_abort = on_abort_.size();
  mark.fields = fields_;
  return savepoints_.add(std::move(mark));
}

// Stores nothing that needs another fence: the copies are of bytes whose entries are durable, or
// are the bytes that are there. Entries stay in the log, except for frees: those of this sequence
// would be done with the commit.
Status Txn::rollback_to(std::uint64_t savepoint) {
  const pm::MetadataOpen rights;
  if (const Status s = status(); s != Status::ok && s != field_error_) return s;
  const Mark* const mark = savepoints_.find(savepoint);
  if (mark == nullptr) return Status::invalid_argument;
  WaitingFields fields = mark->fields;  // from the next line on, nothing needs memory
  std::vector<std::function<void()>> undone(on_abort_.size() - mark->on_abort);
  savepoints_.take_back(*mark, [this](std::uint64_t offset, const std::byte* from, std::size_t n) {
    restore_bytes(file_, {offset}, from, n);
  });
  for (std::size_t i = mark->log; i < log_.size(); ++i) {
    if (!TENUTO_PLANT("tx_savepoint_keeps_entries_of_frees")) log_.forget_free(i);
  }
  for (; freed_.size() > mark->freed; freed_.pop_back()) {
    heap_.unclaim_free(freed_.back().offset);
  }
  while (savepoints_.cancelled() > mark->cancelled) {
    new_blocks_[savepoints_.take_cancelled()].cancelled = false;
  }
  const bool kept = TENUTO_PLANT("tx_savepoint_keeps_new_blocks");
  for (std::size_t i = mark->new_blocks; i < new_blocks_.size() && !kept; ++i) {
    new_blocks_[i].cancelled = true;
  }
  fields_ = std::move(fields);
  field_error_ = Status::ok;
  if (!undo_pending_) store_waiting();
  std::move(on_abort_.begin() + static_cast<std::ptrdiff_t>(mark->on_abort), on_abort_.end(),
            undone.begin());
  on_abort_.resize(mark->on_abort);
  on_commit_.resize(mark->on_commit);
  if (undone.empty()) return Status::ok;
  struct Called {
    bool& in_callbacks;
    ~Called() { in_callbacks = false; }
  } called{in_callbacks_};
  in_callbacks_ = true;
  for (const auto& f : undone) f();
  return Status::ok;
}

// What was done since then is done, or is undone with an older savepoint.
void Txn::release_savepoint(std::uint64_t savepoint) { savepoints_.release(savepoint); }

}  // namespace TENUTO_NS::tx
