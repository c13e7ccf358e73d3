#include "powercut/objects.h"

namespace tenuto::powercut {

ObjectOp ObjectModel::next(std::uint64_t life) {
  done_ += 1;
  const std::uint64_t h = mix(mix(seed_, thread_), mix(done_, life));
  ObjectOp op;
  op.number = done_;
  op.cell = {static_cast<unsigned>(h % kCells), static_cast<unsigned>((h >> 8) % kCells)};
  op.new_note = (h >> 16) % 2 == 0;
  // Mostly small blocks, sometimes an extent.
  op.note_words = (h >> 20) % 16 == 0 ? 1000 + (h >> 24) % 2000 : (h >> 24) % 100;
  op.from = static_cast<unsigned>((h >> 36) % kAccounts);
  op.to = static_cast<unsigned>((op.from + 1 + (h >> 42) % (kAccounts - 1)) % kAccounts);
  op.amount = (h >> 48) % 1000;
  op.sync = thread_ == kKeyThreads && mix(h, 1) % 3 == 0;  // the first such thread syncs at times
  op.abort_first = mix(h, 2) % 8 == 0;

  for (const unsigned c : op.cell) cell_[c] = done_;
  if (op.new_note) {
    note_ = {done_, life};
    note_words_ = op.note_words;
  }
  transferred_[op.from] -= op.amount;
  transferred_[op.to] += op.amount;
  return op;
}

std::string ObjectModel::compare(const Pool& pool, const ThreadObjects& there) const {
  for (unsigned i = 0; i < kCells; ++i) {
    if (there.cell[i] != cell_[i]) {
      return "cell " + std::to_string(i) + " was written by operation " +
             std::to_string(there.cell[i]) + ", not " + std::to_string(cell_[i]);
    }
  }
  Note* const note = there.note.get();
  if (note == nullptr || note_.op == 0) {
    return note == nullptr && note_.op == 0 ? "" : "a block is missing, or one too many";
  }
  if (pool.usable_size(note) < sizeof(Note) + note_words_ * 8) return "the block is not allocated";
  if (!(note->stamp == note_) || note->words != note_words_) return "the block is another one";
  for (std::uint64_t i = 0; i < note_words_; ++i) {
    if (*note->at(i) != note->filling(i))
      return "the block's word " + std::to_string(i) + " is wrong";
  }
  return "";
}

}  // namespace tenuto::powercut
