// A cursor over a tree, in the byte order of the stored keys. The user's iterator is made of it in
// iterator.cc.
//
// The cursor loads the slot words of a leaf, ordered and as of one point in time, and walks over
// them. It reads a record when it comes to it, and remembers only that one. It finds the next leaf
// by a descent with the separator between the two. It is pinned while it loads a leaf. Between two
// calls, and while it moves inside its leaf, it rests: it holds the records of this leaf and no
// other garbage (epoch.h). It prefetches records, and the next leaf, some steps ahead.
//
// **A step** inside a leaf (step()) is some 200 instructions, most of them to check the record. It
// allocates nothing. The leaf's low separator, a line on media, is read only by those who go
// backwards.
//
// The tree of a dropped collection stays while a cursor rests in it. The walk ends with not_found
// when the cursor leaves its leaf.
//
// A snapshot's cursor sees each leaf as of the snapshot's timestamp. A transaction's cursor also
// sees the transaction's own writes. It notes the range that it walks over, which the commit
// validates.
//
// No key is seen twice or skipped, although leaves split and vanish meanwhile: in each leaf the
// walk continues behind (or before) the last key that it returned.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/kv/collections.h"
#include "store/kv/encoding.h"
#include "store/kv/transaction_state.h"

namespace TENUTO_NS::store {

class Cursor {
 public:
  // status() is closed without a collection (state null), and busy when no slot for iterators and
  // views is free. snapshot: null to see each leaf as it is now. txn and write_set: null, or the
  // transaction and its write set in this collection.
  Cursor(std::shared_ptr<CollectionState> state, Span span, std::shared_ptr<SnapshotCore> snapshot,
         std::shared_ptr<TransactionState> txn, WriteSet* write_set);
  ~Cursor();
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;

  void seek(std::string_view key);  // the first key >= key
  void seek_last();
  void seek_for_prev(std::string_view key);  // the last key <= key
  void next();                               // REQUIRES: valid()
  void prev();                               // REQUIRES: valid()
  // next() and prev() as they usually are: inside the leaf, in no transaction, to a sound record of
  // the span. They allocate nothing. False: nothing is done, call the other. REQUIRE: valid().
  bool step() {
    const std::size_t to = at_ + 1;
    if (to >= leaf_.size() || txn_ != nullptr) return false;
    prefetch_ahead(to);
    if (!read_well(to) || (span_.upper && !(key() < *span_.upper))) [[unlikely]]
      return false;
    at_ = to;
    return true;
  }
  bool step_back() {
    if (at_ == 0 || txn_ != nullptr) return false;
    prefetch_before(at_ - 1);
    if (!read_well(at_ - 1) || key() < span_.lower) [[unlikely]]
      return false;
    at_ -= 1;
    return true;
  }
  bool valid() const { return positioned_; }
  std::string_view key() const { return record_.key; }      // REQUIRES: valid()
  std::string_view value() const { return record_.value; }  // REQUIRES: valid()
  Status status() const;
  // From now on compares every record with its checksum, whatever StoreOptions::verify_reads is.
  void verify_always() { verify_always_ = true; }
  // Ends the walk for good, for a reason that the tree does not know.
  void fail(Status s);
  // Ends the walk until the next seek: the last one asked for an impossible key.
  void refuse(Status s);
  // Clears the position and holds nothing any more. REQUIRED after an exception ended a call.
  void leave();

 private:
  void ask_again();
  bool begin();
  bool pin();
  void rest();
  bool load(std::string_view key, Aim aim, bool backward);
  bool verify_bounds(const ShadowLeaf& leaf);
  bool lay_over(std::optional<std::string_view> key, bool backward);
  bool good(Status s);
  bool read(std::size_t i, bool verified, Record& out);
  // May change record_ also when it returns false.
  bool read_well(std::size_t i) {
    return tree_->leaves().read_well(leaf_.words[i], verified(), record_);
  }
  bool verified() const { return verify_always_ || tree_->leaves().verifies(); }
  bool count_below(std::string_view key, bool inclusive, std::size_t& count);
  bool find_exact(std::string_view key, std::size_t& place);
  void stand_forward(std::size_t i);
  void stand_backward(std::size_t i);
  // For a step to entry i: prefetches the record kAhead steps further on.
  void prefetch_ahead(std::size_t i) const {
    const std::size_t ahead = i + kAhead;
    if (ahead + kAhead >= leaf_.size()) [[unlikely]]
      return prefetch_beyond(ahead);
    tree_->leaves().prefetch(leaf_.words[ahead], lines_ahead());
  }
  void prefetch_before(std::size_t i) const {
    if (i >= kAhead) tree_->leaves().prefetch(leaf_.words[i - kAhead], lines_ahead());
  }
  // Lines of a record to prefetch: as the one at the cursor has. Of a longer one the processor sees
  // where the reads go.
  std::uint64_t lines_ahead() const {
    return std::clamp<std::uint64_t>((record_bytes_of(record_) + kLineBytes - 1) / kLineBytes, 2,
                                     kLinesAhead);
  }
  void prefetch_beyond(std::size_t ahead) const;
  void prefetch_from(std::size_t i) const;
  void prefetch_up_to(std::size_t i) const;
  void stop_forward(bool inclusive);
  void go_forward(bool inclusive, std::size_t i);
  void stop_backward(bool bounded, bool inclusive);
  void go_backward(bool bounded, bool inclusive, std::size_t count);
  void note(std::string_view from, std::optional<std::string_view> to);
  std::optional<std::string_view> up_to_here() const;
  std::string_view down_to_here() const;

  static constexpr std::size_t kAhead = 8;  // records
  static constexpr std::uint64_t kLinesAhead = 4;

  SortedLeaf leaf_;  // first: it needs memory, and nothing gives back slot_ when there is none
  // Constant.
  const std::shared_ptr<CollectionState> state_;
  EpochSlot* const slot_;  // null: busy
  const Span span_;
  const std::shared_ptr<SnapshotCore> snapshot_;  // null: each leaf as it is now
  const std::shared_ptr<TransactionState> txn_;   // null: outside transactions
  WriteSet* const write_set_;                     // of txn_
  std::size_t range_ = 0;                         // index in the transaction's reads.ranges
  const Tree* tree_ = nullptr;                    // while positioned
  // The loaded leaf; with many writes of the transaction's own a part of it.
  std::uint64_t loaded_in_ = 0;  // epoch
  UpperBound right_;             // upper bound of its keys
  std::string left_;             // lower bound, inclusive
  bool left_known_ = false;      // known to walks backwards and in transactions
  std::size_t at_ = 0;
  Record record_;  // at at_
  // The key that a move starts from, and the separator that it goes to; members for their memory.
  std::string from_;
  std::string bound_;
  bool positioned_ = false;
  bool verify_always_ = false;
  bool pinned_ = false;  // not at rest
  Status status_ = Status::ok;
  Status refusal_ = Status::ok;  // of the last seek
};

}  // namespace TENUTO_NS::store
