// The words and the steps of the maps. All of it is small; it is here, and not in the templates, so
// that mistakes can be planted in it.
#include "tenuto/maps/slots.h"

#include <algorithm>
#include <cstring>

#include "pm/assert.h"
#include "pm/plant.h"
#include "tenuto/units.h"

namespace TENUTO_NS::slots {

namespace {
// The lowest `ranks` numbers of slots.
constexpr std::uint64_t low(std::uint64_t numbers, unsigned ranks) {
  return numbers & ((std::uint64_t{1} << 4 * ranks) - 1);
}
}  // namespace

Permutation Permutation::inserted(unsigned rank) const {
  const unsigned n = count();
  TENUTO_DCHECK(rank <= n && n < kSlots);
  const std::uint64_t all = word_ >> 4;
  const std::uint64_t before = low(all, rank);
  const std::uint64_t moved = low(all, n) - before;
  const std::uint64_t after = all >> 4 * n >> 4 << 4 * n << 4;
  const std::uint64_t fresh = std::uint64_t{next_free()} << 4 * rank;
  return Permutation((before | fresh | moved << 4 | after) << 4 | (n + 1));
}

Permutation Permutation::erased(unsigned rank) const {
  TENUTO_DCHECK(rank < count());
  if (TENUTO_PLANT("tx_last_slot_of_a_node_erased")) return Permutation(word_ - 1);
  const std::uint64_t all = word_ >> 4;
  const std::uint64_t before = low(all, rank);
  const std::uint64_t after = all >> 4 * rank >> 4 << 4 * rank;
  const std::uint64_t freed = std::uint64_t{slot(rank)} << 4 * (kSlots - 1);
  return Permutation((before | after | freed) << 4 | (count() - 1));
}

// The slots that were free before come first: what is vacated is filled again as late as can be.
Permutation Permutation::kept(unsigned n) const {
  TENUTO_DCHECK(n <= count());
  const std::uint64_t all = word_ >> 4;
  const unsigned free = kSlots - count();
  const std::uint64_t dropped = low(all >> 4 * n, count() - n);
  const std::uint64_t before = low(all >> 4 * count(), free);
  return Permutation((low(all, n) | before << 4 * n | dropped << 4 * n << 4 * free) << 4 | n);
}

bool Permutation::sound() const {
  unsigned seen = 0;
  for (unsigned rank = 0; rank < kSlots; ++rank) seen |= 1u << slot(rank);
  return seen == (1u << kSlots) - 1;
}

Tags Tags::filled(unsigned slot, std::uint8_t tag) const {
  TENUTO_DCHECK(slot < kSlots && (used() >> slot & 1) == 0);
  return Tags(word_ | std::uint64_t{tag} << 8 * slot | std::uint64_t{1} << (56 + slot));
}

Tags Tags::emptied(unsigned slots) const {
  std::uint64_t word = word_;
  for (unsigned s = 0; s < kSlots; ++s) {
    if ((slots >> s & 1) == 0) continue;
    const bool tag = !TENUTO_PLANT("tx_tag_of_an_empty_slot_kept");
    word &= ~(std::uint64_t{tag ? 0xFFu : 0} << 8 * s | std::uint64_t{1} << (56 + s));
  }
  return Tags(word);
}

bool Tags::sound() const {
  if (used() > kAll) return false;
  for (unsigned s = 0; s < kSlots; ++s) {
    if ((used() >> s & 1) == 0 && tag(s) != 0) return false;
  }
  return true;
}

Result<void*> make_node(Transaction& tx, std::size_t bytes, std::size_t align) {
  return tx.alloc(bytes, {.align = std::max<std::size_t>(align, kLineBytes)});
}

Status free_node(Transaction& tx, const void* node) {
  if (TENUTO_PLANT("tx_node_of_a_map_not_freed")) return Status::ok;
  return tx.free(node);
}

Status fill(Transaction& tx, const void* slot, std::size_t bytes) {
  if (TENUTO_PLANT("tx_filled_slot_not_flushed")) return tx.status();
  return tx.overwrite(slot, bytes);
}

Status vacate(Transaction& tx, const void* slot, std::size_t bytes) {
  if (TENUTO_PLANT("tx_vacated_slot_not_saved")) return tx.status();
  return tx.add_later(slot, bytes);
}

Status save_merged(Transaction& tx, const void* bucket, std::size_t bytes) {
  if (TENUTO_PLANT("tx_merged_bucket_not_saved")) return tx.status();
  return tx.add_later(bucket, bytes);
}

Status begin_insert(Transaction& tx, const p<std::uint64_t>& size) { return tx.add_later(size); }

void assign(p<std::uint64_t>& field, std::uint64_t word) {
  if (TENUTO_PLANT("tx_slots_counted_without_an_entry")) {
    std::memcpy(static_cast<void*>(&field), &word, sizeof word);
    return;
  }
  field = word;
}

// --- hashes --------------------------------------------------------------------------------------

namespace {
constexpr std::uint64_t kSecret[] = {0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3};

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t word_at(const char* at, std::size_t bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, bytes);
  return word;
}
}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) {
  std::uint64_t h = kSecret[0] ^ bytes.size();
  std::string_view rest = bytes;
  for (; rest.size() > 16; rest.remove_prefix(16)) {
    h = mix(word_at(rest.data(), 8) ^ kSecret[1], word_at(rest.data() + 8, 8) ^ h);
  }
  const std::size_t first = rest.size() < 8 ? rest.size() : 8;
  const std::uint64_t a = word_at(rest.data(), first);
  const std::uint64_t b = word_at(rest.data() + first, rest.size() - first);
  return mix(mix(a ^ kSecret[1], b ^ h), bytes.size() ^ kSecret[2]);
}

}  // namespace TENUTO_NS::slots
