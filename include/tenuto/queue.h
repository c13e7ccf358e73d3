// A first-in first-out queue in a pool. Its elements are in segments, blocks of about 1 KiB that
// are linked. No element ever moves.
//
//   struct Root {
//     Queue<Job> jobs;
//   };
//   pool.run([&](Transaction& tx) { return root.jobs.push(tx, job); });
//
// Every change takes the transaction to which it belongs, and is durable with it. A call that
// fails, or throws std::bad_alloc, leaves the queue as it was, or the transaction rolled back. All
// changes return: ok | full | too_large | invalid_argument (the queue is not in the transaction's
// pool) | what Transaction::status() says.
//
// A slot of a segment is used once. So a push stores its element at once, flushed and not logged,
// and a pop logs no element. A segment is freed when its last slot was popped. A queue of 40 zero
// bytes is empty.
//
// An element that owns memory (tenuto/element.h) is released by pop_front() and clear(). To keep
// its contents, swap them with those of front() before.
//
// Thread safety: as std::deque. Producers and consumers hold one lock until their transaction ends
// (Transaction::lock). Cost: three fences a transaction however much is pushed and popped; a push
// adds two lines besides the element's, a pop two. Each new segment adds two entries and its lines,
// each freed one an entry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "tenuto/element.h"
#include "tenuto/p.h"
#include "tenuto/ptr.h"
#include "tenuto/status.h"
#include "tenuto/tx.h"

namespace TENUTO_NS {

namespace tx {

// The part of Queue<T> that does not know T (tx/chain.cc).
class TENUTO_API Chain {
 public:
  // On media; the slots follow, aligned.
  struct Segment {
    p<Segment*> next;
    std::uint64_t slots;
  };
  // What the queue needs to know of T.
  struct SlotType {
    std::uint64_t bytes;
    std::uint64_t align;
    std::uint64_t first() const { return (sizeof(Segment) + align - 1) / align * align; }
    void* at(const Segment* s, std::uint64_t i) const {
      return reinterpret_cast<std::byte*>(const_cast<Segment*>(s)) + first() + i * bytes;
    }
  };
  struct View {
    Segment* first = nullptr;
    Segment* last = nullptr;
    std::uint64_t begin = 0;  // the front element, in the first segment
    std::uint64_t end = 0;    // behind the last element, in the last segment
    std::uint64_t size = 0;
  };
  View view() const {
    const Head h = head_.get();
    return {decode(0, h.first), decode(1, h.last), h.begin, h.end, h.size};
  }

  Chain() = default;
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  void relocate_from(const Chain& from) noexcept { new (&head_) p<Head>(encode(from.view())); }

  // Counts one more element. It has no value: the caller constructs it, and must not fail.
  Result<void*> push(Transaction& tx, const SlotType& type);
  Status pop(Transaction& tx);            // not_found
  Status free_segments(Transaction& tx);  // the head stays as it is
  Status drop(Transaction& tx);           // the same, and it is empty
  Status swap(Transaction& tx, Chain& o);

 private:
  // On media. One field, so that one entry logs it. The first two are PtrWords.
  struct Head {
    std::uint64_t first;
    std::uint64_t last;
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t size;
  };
  const std::byte* word(std::size_t i) const {
    return reinterpret_cast<const std::byte*>(this) + i * sizeof(std::uint64_t);
  }
  Segment* decode(std::size_t i, std::uint64_t raw) const {
    return static_cast<Segment*>(PtrWord::decode(word(i), raw));
  }
  Head encode(const View& v) const {
    return {PtrWord::encode(word(0), v.first), PtrWord::encode(word(1), v.last), v.begin, v.end,
            v.size};
  }
  Status put(Transaction& tx, const View& v);
  Result<void*> push_segment(Transaction& tx, const SlotType& type, View v);

  p<Head> head_;
};
static_assert(sizeof(Chain) == 40 && sizeof(Chain::Segment) == 16);

}  // namespace tx

template <class T>
class Queue {
  template <class E>
  class Walk;

 public:
  using value_type = T;
  using iterator = Walk<T>;
  using const_iterator = Walk<const T>;

  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  Queue(Relocation, Queue& from) noexcept { chain_.relocate_from(from.chain_); }

  std::size_t size() const { return chain_.view().size; }
  bool empty() const { return size() == 0; }
  // The oldest element; null: the queue is empty. Elements with fields may be changed.
  const T* front() const { return oldest(); }
  T* front() requires(!is_plain<T>()) { return oldest(); }

  // Adds an element at the end.
  Status push(Transaction& tx, const T& value) requires std::is_nothrow_copy_constructible_v<T> {
    const Result<void*> slot = chain_.push(tx, type());
    if (!slot) return slot.error();
    new (*slot) T(value);
    return Status::ok;
  }
  // The same from the arguments of a constructor, or of T::construct: of a String its text. The
  // pointer is valid until the element is popped.
  template <class... Args>
  Result<T*> emplace(Transaction& tx, Args&&... args) {
    Made<T> made(tx, std::forward<Args>(args)...);
    TENUTO_TRY(made.status());
    const Result<void*> slot = chain_.push(tx, type());
    if (!slot) return slot.error();
    return made.place(*slot);
  }

  // Removes the oldest element, and returns it. not_found: the queue is empty.
  Result<T> pop(Transaction& tx) requires(std::is_nothrow_copy_constructible_v<T> &&
                                          !is_owner<T>()) {
    const T* const oldest = front();
    if (oldest == nullptr) return Status::not_found;
    T value(*oldest);
    TENUTO_TRY(chain_.pop(tx));
    return value;
  }
  // Removes the oldest element, and frees what it owns. not_found: the queue is empty.
  Status pop_front(Transaction& tx) {
    if constexpr (!Owner<T>) return chain_.pop(tx);
    T* const element = oldest();
    if (element == nullptr) return Status::not_found;
    AllOrAbort all_of_it(tx);
    TENUTO_TRY(tenuto::release(*element, tx));
    TENUTO_TRY(chain_.pop(tx));
    return all_of_it.done();
  }
  // Removes all elements, and frees what they own. Cost: an entry for each segment.
  Status clear(Transaction& tx) {
    AllOrAbort all_of_it(tx);
    TENUTO_TRY(release_all(tx));
    TENUTO_TRY(chain_.drop(tx));
    return all_of_it.done();
  }
  // Exchanges the contents. No element moves.
  Status swap(Transaction& tx, Queue& o) { return chain_.swap(tx, o.chain_); }

  // From the oldest to the youngest. Forward iterators; valid until their element is popped, and
  // the end until the queue changes.
  const_iterator begin() const { return const_iterator(chain_.view()); }
  const_iterator end() const { return const_iterator(); }
  iterator begin() requires(!is_plain<T>()) { return iterator(chain_.view()); }
  iterator end() requires(!is_plain<T>()) { return iterator(); }

  // Whether the segments are blocks and have as many elements as they should, and whether these are
  // sound; of any bytes (BlocksOf in tenuto/element.h). ok | corrupt, with a report. REQUIRES: no
  // transaction is open on the pool.
  template <PoolOfBlocks AnyPool>
  Status validate(const AnyPool& pool, Report* report = nullptr) const {
    const BlocksOf blocks(pool);
    TENUTO_TRY(validate_segments(blocks, report));
    for (const T& element : *this) TENUTO_TRY(blocks.validate(element, report));
    return Status::ok;
  }

  // As an element (tenuto/element.h). Frees the segments, and what the elements own. The queue has
  // no value afterwards; clear() leaves an empty one.
  Status release(Transaction& tx) {
    TENUTO_TRY(release_all(tx));
    return chain_.free_segments(tx);
  }
  // For collections (tenuto/references.h).
  void references(const References& visit) const {
    const auto v = chain_.view();
    std::uint64_t begin = v.begin;
    for (const tx::Chain::Segment* s = v.first; s != nullptr; s = s->next, begin = 0) {
      if (!visit.has(s, sizeof *s) || s->slots > ~std::uint64_t{0} / 2 / sizeof(T) ||
          !visit.has(s, type().first() + s->slots * sizeof(T), alignof(T))) {
        return visit.words(this, sizeof *this);
      }
      if (!visit.owns(s, sizeof *s)) return;
      const std::uint64_t end = s == v.last ? std::min(v.end, s->slots) : s->slots;
      for (std::uint64_t i = begin; i < end; ++i) {
        visit_element(visit, *static_cast<const T*>(type().at(s, i)));
      }
      if (s == v.last) return;
    }
  }

 private:
  static tx::Chain::SlotType type() {
    static_assert(Element<T>, "see tenuto/element.h");
    return {sizeof(T), alignof(T)};
  }
  T* oldest() const {
    const auto v = chain_.view();
    return v.size == 0 ? nullptr : static_cast<T*>(type().at(v.first, v.begin));
  }
  // Each segment has elements, so the size bounds their number.
  template <class Blocks>
  Status validate_segments(const Blocks& blocks, Report* report) const {
    const auto wrong = [&](const char* what) { return fail(Status::corrupt, report, what); };
    const auto v = chain_.view();
    const auto slot_type = type();
    if (v.first == nullptr) return v.size == 0 ? Status::ok : wrong("a queue has no segment");
    std::uint64_t begin = v.begin, counted = 0;
    for (const tx::Chain::Segment* s = v.first;; s = s->next, begin = 0) {
      if (!blocks.has(s, sizeof(*s)) || s->slots > ~std::uint64_t{0} / 2 / sizeof(T) ||
          !blocks.has(s, slot_type.first() + s->slots * sizeof(T), alignof(T))) {
        return wrong("a segment of a queue is no block");
      }
      const std::uint64_t end = s == v.last ? v.end : s->slots;
      if (end > s->slots || begin > end) return wrong("a segment of a queue has fewer slots");
      counted += end - begin;
      if (s == v.last) break;
      if (begin == end || counted > v.size) return wrong("a queue has more segments than elements");
    }
    return counted == v.size ? Status::ok : wrong("the size of a queue is not its elements'");
  }
  Status release_all(Transaction& tx) {
    if constexpr (Owner<T>) {
      for (T& element : *this) TENUTO_TRY(element.release(tx));
    }
    return Status::ok;
  }

  template <class E>
  class Walk {
   public:
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using reference = E&;
    using pointer = E*;
    using iterator_category = std::forward_iterator_tag;

    Walk() = default;
    E& operator*() const { return *static_cast<E*>(type().at(segment_, i_)); }
    E* operator->() const { return &**this; }
    Walk& operator++() {
      left_ -= 1;
      if (++i_ == segment_->slots && left_ > 0) {
        segment_ = segment_->next;
        i_ = 0;
      }
      return *this;
    }
    Walk operator++(int) {
      const Walk before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Walk& o) const { return left_ == o.left_; }

   private:
    friend class Queue;
    explicit Walk(const tx::Chain::View& v) : segment_(v.first), i_(v.begin), left_(v.size) {}
    const tx::Chain::Segment* segment_ = nullptr;
    std::uint64_t i_ = 0;
    std::uint64_t left_ = 0;  // elements from here on
  };

  tx::Chain chain_;
};

}  // namespace TENUTO_NS
