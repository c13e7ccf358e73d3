#include "store/tree/lookup_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "pm/no_memory.h"
#include "pm/plant.h"
#include "tenuto/units.h"

namespace TENUTO_NS::store {

// --- the budget ----------------------------------------------------------------------------------

bool LookupBudget::take(std::uint64_t bytes) {
  constexpr std::uint64_t kSmall = 64u << 10;
  std::uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    const std::uint64_t limit = limit_.load(std::memory_order_relaxed);
    const std::uint64_t left = limit - std::min(limit, used);
    if (bytes > (bytes <= kSmall ? left : left / 2)) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

// --- the table -----------------------------------------------------------------------------------

namespace {

// Buckets of a table for so many records. With four records a bucket of seven entries, one key of
// sixty finds its bucket full (Poisson).
std::uint64_t buckets_for(std::uint64_t records) {
  constexpr std::uint64_t kRecords = 4;
  constexpr std::uint64_t kLeast = 64;  // one page
  constexpr std::uint64_t kMost = 1ull << 40;
  return std::bit_ceil(std::clamp(records / kRecords, kLeast, kMost));
}

}  // namespace

// Null: there is no memory. Fresh memory is zero: buckets without entries. It is in huge pages if
// the system has them.
LookupCache::Table* LookupCache::make_table(std::uint64_t buckets, Table* before) {
  const std::uint64_t bytes = buckets * sizeof(Bucket);
  void* const p =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  if (bytes >= 2 * kHugeBytes) ::madvise(p, bytes, MADV_HUGEPAGE);  // a refusal only costs speed
  Table* made = nullptr;
  if (!pm::had_memory([&] { made = new Table{static_cast<Bucket*>(p), buckets, before}; })) {
    ::munmap(p, bytes);
  }
  return made;
}

LookupCache::~LookupCache() {
  if (const Table* t = table_.load(std::memory_order_relaxed)) budget_.give(t->bytes());
  for (Table* t = table_.load(std::memory_order_relaxed); t != nullptr;) {
    ::munmap(t->buckets, t->bytes());
    delete std::exchange(t, t->before);
  }
}

void LookupCache::grow(std::uint64_t records) const {
  const std::unique_lock lock(mu_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  Table* const old = table_.load(std::memory_order_relaxed);
  const std::uint64_t least = old == nullptr ? buckets_for(0) : 2 * old->count;
  std::uint64_t buckets = buckets_for(records);
  while (buckets >= least && !budget_.take(buckets * sizeof(Bucket))) buckets /= 2;
  Table* const made = buckets >= least ? make_table(buckets, old) : nullptr;
  if (made == nullptr && buckets >= least) budget_.give(buckets * sizeof(Bucket));
  pressure_.store(0, std::memory_order_relaxed);
  // Ask again when the entries may have been displaced once; later and later, if that is no use.
  patience_.store(made != nullptr ? made->count * Bucket::kEntries
                                  : 2 * patience_.load(std::memory_order_relaxed) + 1024,
                  std::memory_order_relaxed);
  if (made == nullptr) return;
  table_.exchange(made, std::memory_order_seq_cst);
  if (old == nullptr) return;
  // Small pages: a late reader that enters something brings one page back.
  ::madvise(old->buckets, old->bytes(), MADV_NOHUGEPAGE);
  if (::madvise(old->buckets, old->bytes(), MADV_DONTNEED) == 0) budget_.give(old->bytes());
}

std::uint64_t LookupCache::bytes() const {
  const Table* const table = table_.load(std::memory_order_acquire);
  return table == nullptr ? 0 : table->bytes();
}

// --- entries -------------------------------------------------------------------------------------

void LookupCache::enter(const Look& look, PoolOffset record) const {
  constexpr std::uint64_t kCounted = 16;  // one of so many is counted
  const auto count = [this](std::uint64_t n) {
    if (budget_.full()) return;
    pressure_.store(pressure_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  };
  const auto is_the_trees = [&] {
    return table_.load(std::memory_order_seq_cst) == look.table_ ||
           TENUTO_PLANT("store_lookup_enters_old_table");
  };
  if (!is_the_trees()) return;
  if (look.bucket_ == nullptr) return count(1);
  Bucket& bucket = *look.bucket_;
  std::uint64_t seen = look.version_;
  if (TENUTO_PLANT("store_lookup_enters_unchecked")) seen = bucket.version.load();
  if ((seen & Bucket::kHeld) != 0 || !bucket.hold_if(seen)) return;
  if (!is_the_trees()) return bucket.release();
  const std::uint64_t turn = seen / Bucket::kStep;
  unsigned at = 0;
  while (at < Bucket::kEntries && bucket.entry[at].load(std::memory_order_relaxed) != 0) ++at;
  if (at == Bucket::kEntries) {
    at = static_cast<unsigned>(turn % Bucket::kEntries);
    if (turn % kCounted == 0) count(kCounted);
  }
  bucket.entry[at].store(entry_of(look.hash_, record), std::memory_order_release);
  bucket.release();
}

void LookupCache::Bucket::hold() {
  Backoff wait;
  for (;;) {
    const std::uint64_t seen = version.load(std::memory_order_relaxed);
    if ((seen & kHeld) == 0 && hold_if(seen)) return;
    wait.pause();
  }
}

// All entries with the key's tag go. Those of other keys among them are no loss.
LookupCache::Change::Change(const LookupCache& cache, KeyHash hash) : hash_(hash) {
  const Table* const table = cache.table_.load(std::memory_order_seq_cst);
  if (table == nullptr || TENUTO_PLANT("store_lookup_change_unseen")) return;
  bucket_ = &table->of(hash);
  bucket_->hold();
  for (unsigned i = 0; i < Bucket::kEntries; ++i) {
    const std::uint64_t entry = bucket_->entry[i].load(std::memory_order_relaxed);
    if (entry != 0 && entry >> kTagShift != tag_of(hash)) continue;
    if (entry != 0) bucket_->entry[i].store(0, std::memory_order_relaxed);
    free_ = i;
  }
}

bool LookupCache::names(KeyHash hash, PoolOffset record) const {
  Look found = look(hash);
  for (PoolOffset at = found.next(); at; at = found.next()) {
    if (at == record) return true;
  }
  return false;
}

}  // namespace TENUTO_NS::store
