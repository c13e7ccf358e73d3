#include "store/one_fence.h"

#include <array>
#include <bit>

#include "pm/assert.h"
#include "pm/plant.h"
#include "store/hash.h"
#include "tenuto/persist.h"

namespace tenuto::inline TENUTO_ABI::store {

namespace {

constexpr std::uint64_t kLine = (1ull << kLineSlots) - 1;
constexpr std::uint64_t line_of_slot(unsigned slot) {
  return kLine << slot / kLineSlots * kLineSlots;
}

}  // namespace

void insert_tagged(VLeaf& twin, unsigned slot, SlotWord word, std::uint8_t print) {
  publish(twin.leaf->slot[slot], word);
  fence("record and its slot", "insert returns");
  twin.set_entry(slot, word, print);
}

void update_tagged(VLeaf& twin, unsigned from, unsigned to, SlotWord word) {
  Leaf& leaf = *twin.leaf;
  if (TENUTO_PLANT("store_replaced_slot_emptied_early")) store_ordered(leaf.slot[from], {0});
  publish(leaf.slot[to], word);
  fence("record and its slot", "replaced slot is emptied");
  store_ordered(leaf.slot[from], {0});
  transient(&leaf.slot[from], sizeof(SlotWord));  // until the record is freed
  twin.move_entry(from, to, word);
}

void erase_tagged(VLeaf& twin, unsigned slot) {
  publish(twin.leaf->slot[slot], {0});
  fence("emptied slot", "erase returns, record is retired");
  twin.set_print(slot, 0);
}

unsigned slot_beside(std::uint64_t used, unsigned slot) {
  std::uint64_t line = line_of_slot(slot);
  if (TENUTO_PLANT("store_update_takes_another_line")) {
    line = line_of_slot((slot + kLineSlots) % kSlots);
  }
  const std::uint64_t empty = ~used & line;
  TENUTO_ASSERT(empty != 0);
  return static_cast<unsigned>(std::countr_zero(empty));
}

void link_split_tagged(Leaf& left, PoolOffset right, std::uint64_t moved) {
  publish(left.head.next, header_word(left.head.next, right.value));
  if (!TENUTO_PLANT("store_moved_slots_emptied_with_the_link")) {
    fence("chain link", "moved slots are emptied");
  }
  drop_slots(left, moved);
  // Else another thread's erase in the right leaf could be durable before these.
  fence("moved slots", "leaf lock is released");
}

void drop_slots(Leaf& leaf, std::uint64_t slots) {
  for (std::uint64_t rest = slots; rest != 0; rest &= rest - 1) {
    store_ordered(leaf.slot[std::countr_zero(rest)], {0});
  }
  for (unsigned first = 0; first < kSlots; first += kLineSlots) {
    if ((slots & kLine << first) != 0) flush(leaf.slot[first]);
  }
}

void write_prints(const VLeaf& twin) {
  LeafHeader& head = twin.leaf->head;
  for (unsigned i = 0; i < kSlots; ++i) {
    head.print[i] = twin.print[i].load(std::memory_order_relaxed);
  }
  flush(head);
}

// --- after a crash ------------------------------------------------------------------------------

void prefetch_records(const pm::PoolFile& file, const Leaf& leaf) {
  for (const SlotWord& word : leaf.slot) {
    if (word.raw != 0) prefetch_record(file, word.record());
  }
}

namespace {

class Scanner {
 public:
  Scanner(const pm::PoolFile& file, const Leaf& leaf, LeafScan& out)
      : file_(file), leaf_(leaf), out_(out) {}

  void look(unsigned slot) {
    const SlotWord word = leaf_.slot[slot];
    const std::uint64_t bit = 1ull << slot;
    if (word.raw == 0) return;
    const bool place_can_be = word.version() < SlotWord::kVersions &&
                              word.record().value >= pm::kHeadBytes &&
                              file_.in_range(word.record(), sizeof(TaggedHead));
    if (!place_can_be) {
      out_.wrong |= bit;
      return;
    }
    Record& r = records_[slot];
    if (!fits(word, r)) {
      out_.torn |= bit;
    } else {
      out_.print[slot] = hash_key(r.key).print;
      out_.live |= bit;
      meet_versions(slot);
    }
  }

  // After all were looked at: a split moves the newest version of a key, and may leave two.
  void judge(std::string_view low, const Leaf* right, std::optional<std::string_view> end) {
    for (std::uint64_t rest = out_.live; rest != 0; rest &= rest - 1) {
      const auto slot = static_cast<unsigned>(std::countr_zero(rest));
      const Record& r = records_[slot];
      const bool behind = end && !(r.key < *end);
      if (!behind && !(r.key < low)) {
        out_.bytes += bytes_of(r);
        continue;
      }
      const bool moved = behind && stands_in(*right, leaf_.slot[slot]);
      out_.live &= ~(1ull << slot);
      (moved ? out_.moved : out_.wrong) |= 1ull << slot;
    }
    for (unsigned i = 0; i < kSlots; ++i) {
      if ((out_.live >> i & 1) == 0) out_.print[i] = 0;
    }
  }

 private:
  bool fits(SlotWord word, Record& r) const {
    constexpr CommitProtocol p = CommitProtocol::one_fence;
    if (!read_record(p, file_, word.record(), r)) return false;
    if (TENUTO_PLANT("store_recovery_believes_torn_records")) return true;
    return head_fits(p, file_, word) && record_sound(p, file_, word.record(), r);
  }

  // Whoever changes the right leaf at the same time, a leaf that a split was about to show is
  // whole.
  static bool stands_in(const Leaf& right, SlotWord word) {
    bool found = false;
    for (const SlotWord& w : right.slot) {
      found |= __atomic_load_n(&w.raw, __ATOMIC_RELAXED) == word.raw;
    }
    return found;
  }

  // The same key before it in the same line.
  void meet_versions(unsigned slot) {
    const std::uint64_t before = out_.live & line_of_slot(slot) & ((1ull << slot) - 1);
    for (std::uint64_t rest = before; rest != 0; rest &= rest - 1) {
      const auto other = static_cast<unsigned>(std::countr_zero(rest));
      if (out_.print[other] != out_.print[slot]) continue;
      if (records_[other].key != records_[slot].key) continue;
      const SlotWord a = leaf_.slot[other];
      const SlotWord b = leaf_.slot[slot];
      unsigned old = b.version() == a.next_version() ? other : slot;
      if (TENUTO_PLANT("store_recovery_takes_the_older_version")) old = old == other ? slot : other;
      const bool follow = b.version() == a.next_version() || a.version() == b.next_version();
      out_.live &= ~(1ull << old);
      (follow ? out_.replaced : out_.wrong) |= 1ull << old;
    }
  }

  const pm::PoolFile& file_;
  const Leaf& leaf_;
  LeafScan& out_;
  std::array<Record, kSlots> records_;
};

}  // namespace

LeafScan scan_leaf(const pm::PoolFile& file, const Leaf& leaf, std::string_view low,
                   const Leaf* right, std::optional<std::string_view> end) {
  LeafScan out;
  Scanner scanner(file, leaf, out);
  for (unsigned i = 0; i < kSlots; ++i) scanner.look(i);
  scanner.judge(low, right, end);
  return out;
}

}  // namespace tenuto::inline TENUTO_ABI::store
