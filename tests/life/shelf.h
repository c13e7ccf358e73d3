// Containers beside the objects of a life. What they hold follows from the stamps of the root: the
// transaction that stamps a slot changes them, too. So the model needs to know nothing of them, and
// a look compares them with the stamps.
#pragma once

#include <cstdint>
#include <string>

#include "tenuto/hash_map.h"
#include "tenuto/ordered_map.h"
#include "tenuto/pool.h"
#include "tenuto/queue.h"
#include "tenuto/string.h"
#include "tenuto/vector.h"

namespace tenuto::life {

class Shelf {
 public:
  // A slot of the root has the stamp `before`, and gets `stamp`. REQUIRES: stamp is not 0.
  Status put(Transaction& tx, std::uint64_t slot, std::uint64_t before, std::uint64_t stamp);
  // What does not agree with the stamps, or is damaged; or an empty string. stamp_of(slot) for
  // slots 0 to slots - 1.
  template <class StampOf>
  std::string compare(const Pool& pool, std::uint64_t slots, StampOf&& stamp_of) const {
    if (std::string wrong = damage(pool); !wrong.empty()) return wrong;
    std::uint64_t entries = 0, stamped = 0;
    for (std::uint64_t slot = 0; slot < slots; ++slot) {
      const std::uint64_t stamp = stamp_of(slot);
      if (std::string wrong = compare_slot(slot, stamp); !wrong.empty()) return wrong;
      entries += entries_of(stamp);
      stamped += stamp != 0;
    }
    if (stamped == 0) return {};
    const Last last = latest();
    if (stamp_of(last.slot) != last.stamp) return "the queue ends with another stamp";
    return tree_.size() == entries && table_.size() == entries && texts_.size() == stamped
               ? ""
               : "there are too many entries";
  }
  std::uint64_t blocks() const;
  void references(const References& visit) const { visit(tree_, table_, texts_, numbers_, queue_); }
  // With gc and internal a mark after a crash takes small numbers for distances of versioned words
  // (tenuto/garbage.h), so it may keep blocks that nobody has. Then blocks cannot be counted.
  bool may_keep_others(std::uint64_t consistency) const {
    return consistency >= 2 && !numbers_.empty();
  }

  // The most that the blocks take, for each slot with a stamp, and besides.
  static constexpr std::uint64_t kSlotBytesMax = 4096;
  static constexpr std::uint64_t kBytesMax = 16384;

 private:
  static constexpr std::uint64_t kEntriesMax = 8;  // of a slot
  static constexpr std::size_t kQueueMax = 100;
  static constexpr std::size_t kNumbers = 256;
  struct Last {
    std::uint64_t slot;
    std::uint64_t stamp;
  };
  static std::uint64_t entries_of(std::uint64_t stamp) {
    return stamp == 0 ? 0 : (stamp >> 24) % (kEntriesMax + 1);
  }
  static std::uint64_t key_of(std::uint64_t slot, std::uint64_t i) { return slot * 16 + i; }
  static std::string text_of(std::uint64_t stamp);
  std::string damage(const Pool& pool) const;
  std::string compare_slot(std::uint64_t slot, std::uint64_t stamp) const;
  Last latest() const;

  OrderedMap<std::uint64_t, std::uint64_t> tree_;  // as many entries for a slot as its stamp says
  HashMap<std::uint64_t, std::uint64_t> table_;    // the same
  OrderedMap<std::uint64_t, String> texts_;        // slot: its stamp as text
  Vector<std::uint64_t> numbers_;                  // the stamp of each slot; or nothing yet
  Queue<Last> queue_;                              // the last stamps
};

}  // namespace tenuto::life
