// Lists of unlinked memory that waits to be freed. Items change lists together with their chunk, so
// only new chunks need memory. A thread that retires may hold locks and has often fenced already,
// so nothing here throws. A chunk for which there is no memory is null.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "tenuto/abi.h"

namespace TENUTO_NS::store {

struct Retired {
  enum class What : std::uint8_t { block, node, old_version };
  std::uint64_t word = 0;  // PoolOffset, Node*, OldVersion*
  What what = What::block;
  std::uint64_t bytes = 0;  // of a block: the bytes written to it
};

struct RetiredChunk {
  static constexpr std::size_t kItems = 64;
  RetiredChunk* next = nullptr;
  std::uint64_t epoch = 0;  // in which its items were retired
  std::size_t count = 0;
  Retired item[kItems];

  Retired* begin() { return item; }
  Retired* end() { return item + count; }
  const Retired* begin() const { return item; }
  const Retired* end() const { return item + count; }
  bool full() const { return count == kItems; }
};

// First in, first out. Owns its chunks.
class RetiredList {
 public:
  RetiredList() = default;
  RetiredList(RetiredList&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)), last_(std::exchange(other.last_, nullptr)) {}
  RetiredList& operator=(RetiredList&&) = delete;
  ~RetiredList() {
    while (RetiredChunk* chunk = pop()) delete chunk;
  }

  RetiredChunk* first() const { return first_; }
  bool empty() const { return first_ == nullptr; }
  void push(RetiredChunk* chunk) {
    chunk->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = chunk;
    last_ = chunk;
  }
  RetiredChunk* pop() {
    RetiredChunk* const chunk = first_;
    if (chunk != nullptr) first_ = chunk->next;
    return chunk;
  }
  void append(RetiredList&& other) {
    if (other.empty()) return;
    (first_ == nullptr ? first_ : last_->next) = std::exchange(other.first_, nullptr);
    last_ = other.last_;
  }
  // True: the items are in the last chunk, which had room, and `from` is empty.
  bool take_items(RetiredChunk& from) {
    if (empty() || last_->count + from.count > RetiredChunk::kItems) return false;
    std::copy(from.begin(), from.end(), last_->end());
    last_->count += std::exchange(from.count, 0);
    return true;
  }

 private:
  RetiredChunk* first_ = nullptr;
  RetiredChunk* last_ = nullptr;
};

}  // namespace TENUTO_NS::store
