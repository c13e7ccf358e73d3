#include "record.h"

#include <algorithm>

namespace tenuto::life {
namespace {

void store(std::uint64_t& word, std::uint64_t v) { __atomic_store_n(&word, v, __ATOMIC_RELEASE); }

}  // namespace

void Recorder::begin(Verb verb, std::size_t step, unsigned store_number,
                     std::span<const std::uint64_t> arguments) {
  Entry& e = entry();
  e.what = static_cast<std::uint64_t>(verb) | std::uint64_t{thread_} << 8 |
           std::uint64_t{store_number} << 16 | std::uint64_t{step} << 32;
  e.returned = 0;
  e.status = 0;
  e.arguments = arguments.size();
  e.results = 0;
  std::uint64_t* const words = reinterpret_cast<std::uint64_t*>(&e) + kHeader;
  std::copy(arguments.begin(), arguments.end(), words);
  words[arguments.size()] = 0;  // marks the end
  shared_.call[thread_].store(static_cast<std::uint32_t>(verb) + 1, std::memory_order_relaxed);
  shared_.progress.fetch_add(1, std::memory_order_relaxed);
  e.invoke = shared_.ticket.fetch_add(1);
  store(e.words, kHeader + arguments.size());
}

void Recorder::end(std::uint64_t status, std::span<const std::uint64_t> results) {
  const std::uint64_t ticket = shared_.ticket.fetch_add(1);
  Entry& e = entry();
  std::copy(results.begin(), results.end(),
            reinterpret_cast<std::uint64_t*>(&e) + kHeader + e.arguments);
  reinterpret_cast<std::uint64_t*>(&e)[kHeader + e.arguments + results.size()] = 0;
  e.results = results.size();
  e.status = status;
  store(e.words, kHeader + e.arguments + e.results);
  store(e.returned, ticket);
  at_ += e.words;
  shared_.progress.fetch_add(1, std::memory_order_relaxed);
}

std::vector<Op> take_record(Shared& shared) {
  std::vector<Op> ops;
  for (auto& area : shared.area) {
    std::size_t at = 0;
    while (at + kHeader < kAreaWords) {
      const Entry& e = *reinterpret_cast<const Entry*>(area + at);
      if (e.words == 0) break;
      Op op;
      op.verb = static_cast<Verb>(e.what & 0xff);
      op.thread = e.what >> 8 & 0xff;
      op.store = e.what >> 16 & 0xff;
      op.step = e.what >> 32;
      op.invoke = e.invoke;
      op.returned = e.returned;
      op.status = e.status & ~kRefused;
      op.refused = (e.status & kRefused) != 0;
      const std::uint64_t* const words = area + at + kHeader;
      op.a.assign(words, words + e.arguments);
      // A kill may have come between the results and the word that completes the entry.
      if (!op.pending()) op.r.assign(words + e.arguments, words + e.arguments + e.results);
      const bool last = op.pending();
      ops.push_back(std::move(op));
      at += e.words;
      if (last) break;
    }
    area[0] = 0;
  }
  return ops;
}

}  // namespace tenuto::life
