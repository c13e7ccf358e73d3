// A bounded queue of numbers in a pool: one writer, one reader. entry[head % kEntries] is the
// oldest number; numbers [head, tail) are in the queue.
#pragma once

#include <cstdint>
#include <optional>

#include "tenuto/persist.h"

namespace example {

struct Entry {
  std::uint64_t number;
  std::uint64_t check;  // computed from the number, so a reader can detect a torn entry
};

constexpr std::uint64_t check_of(std::uint64_t number) { return ~number * 0x9e3779b97f4a7c15; }

struct Queue {
  static constexpr std::uint64_t kEntries = 16;

  alignas(64) std::uint64_t tail;
  alignas(64) std::uint64_t head;
  alignas(64) Entry entry[kEntries];

  // Returns false if the queue is full. Durable on return.
  bool push(std::uint64_t number) {
    if (tail - head == kEntries) return false;
    Entry& e = entry[tail % kEntries];
    e = {number, check_of(number)};
    tenuto::flush(e);
    tenuto::publish(tail, tail + 1);
    tenuto::fence("entry and tail", "push returns");
    return true;
  }

  // Returns nullopt if the queue is empty. Durable on return.
  std::optional<std::uint64_t> pop() {
    if (tail == head) return std::nullopt;
    const std::uint64_t number = entry[head % kEntries].number;
    tenuto::publish(head, head + 1);
    tenuto::fence("head", "pop returns");
    return number;
  }
};

}  // namespace example
