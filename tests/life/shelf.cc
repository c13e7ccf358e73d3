#include "shelf.h"

namespace tenuto::life {

std::string Shelf::text_of(std::uint64_t stamp) {
  return std::to_string(stamp) + std::string(stamp % 29, 's');
}

Status Shelf::put(Transaction& tx, std::uint64_t slot, std::uint64_t before, std::uint64_t stamp) {
  for (std::uint64_t i = 0; i < entries_of(before); ++i) {
    TENUTO_TRY(tree_.erase(tx, key_of(slot, i)));
    TENUTO_TRY(table_.erase(tx, key_of(slot, i)));
  }
  for (std::uint64_t i = 0; i < entries_of(stamp); ++i) {
    TENUTO_TRY(tree_.insert(tx, key_of(slot, i), stamp + i));
    TENUTO_TRY(table_.insert(tx, key_of(slot, i), stamp + i));
  }
  TENUTO_TRY(texts_.insert_or_assign(tx, slot, text_of(stamp)));
  if (numbers_.empty()) TENUTO_TRY(numbers_.resize(tx, kNumbers, 0));
  TENUTO_TRY(numbers_.set(tx, slot, stamp));
  TENUTO_TRY(queue_.push(tx, {slot, stamp}));
  return queue_.size() > kQueueMax ? queue_.pop(tx).error() : Status::ok;
}

std::string Shelf::damage(const Pool& pool) const {
  Report r;
  const bool sound =
      tree_.validate(pool, &r) == Status::ok && table_.validate(pool, &r) == Status::ok &&
      texts_.validate(pool, &r) == Status::ok && numbers_.validate(pool, &r) == Status::ok &&
      queue_.validate(pool, &r) == Status::ok;
  return sound ? "" : r.text();
}

std::string Shelf::compare_slot(std::uint64_t slot, std::uint64_t stamp) const {
  const std::string of = " of slot " + std::to_string(slot) + " of the root";
  for (std::uint64_t i = 0; i < entries_of(stamp); ++i) {
    const auto* const in_tree = tree_.get(key_of(slot, i));
    const auto* const in_table = table_.get(key_of(slot, i));
    if (in_tree == nullptr || *in_tree != stamp + i) return "the ordered map lacks entries" + of;
    if (in_table == nullptr || *in_table != stamp + i) return "the hash map lacks entries" + of;
  }
  const String* const text = texts_.get(slot);
  if ((text != nullptr) != (stamp != 0) || (text != nullptr && *text != text_of(stamp))) {
    return "the text is another one" + of;
  }
  const std::uint64_t number = numbers_.empty() ? 0 : numbers_[slot];
  return number == stamp ? "" : "the vector has another stamp" + of;
}

Shelf::Last Shelf::latest() const {
  Last last{};
  for (const Last& l : queue_) last = l;
  return last;
}

std::uint64_t Shelf::blocks() const {
  std::uint64_t n = numbers_.capacity() != 0;
  const auto count = [&](const void*) { ++n; };
  tree_.for_each_block(count);
  table_.for_each_block(count);
  texts_.for_each_block(count);
  for (const auto& [slot, text] : texts_) n += text.capacity() > String::kInlineMax;
  // A segment ends where the next element is not behind the one before.
  const Last* before = nullptr;
  for (const Last& l : queue_) {
    n += before == nullptr || &l != before + 1;
    before = &l;
  }
  return n;
}

}  // namespace tenuto::life
