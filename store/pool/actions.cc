#include "tenuto/actions.h"

#include "pm/no_memory.h"
#include "store/pool/pool_impl.h"

namespace TENUTO_NS {

namespace {
template <class T>
void make_room_in(std::vector<T>& v) {
  if (v.size() == v.capacity()) v.reserve(2 * v.size() + 8);
}
}  // namespace

Result<void*> Actions::reserve(std::uint64_t bytes, const AllocOptions& options) {
  make_room_in(blocks_);
  make_room_in(sizes_);
  const Result<Reserved> block = pool_.reserve(bytes, options);
  if (!block) return block.error();
  blocks_.push_back(*block);
  sizes_.push_back(bytes);
  return block->data;
}

void Actions::set_bytes(void* dest, const void* value, std::size_t bytes) {
  make_room_in(values_);
  const auto* const from = static_cast<const std::byte*>(value);
  const std::size_t at = bytes_.size();
  bytes_.insert(bytes_.end(), from, from + bytes);
  values_.push_back({dest, at, bytes});
}

// publish will add no byte there, and so be refused.
void Actions::refuse(const void* target) {
  make_room_in(values_);
  values_.push_back({const_cast<void*>(target), bytes_.size(), 0});
}

void Actions::free(const void* object) { freed_.push_back(object); }

// A block that the transaction has adopted is the transaction's, whatever follows.
Status Actions::publish_in(Transaction& tx) {
  TENUTO_TRY(tx.status());
  for (; !blocks_.empty(); blocks_.pop_back(), sizes_.pop_back()) {
    TENUTO_TRY(tx.adopt(blocks_.back().offset, sizes_.back()));
  }
  for (const void* object : freed_) TENUTO_TRY(tx.free(object));
  for (const Value& v : values_) TENUTO_TRY(tx.add_later(v.dest, v.bytes));
  TENUTO_TRY(tx.ready());
  for (const Value& v : values_) {
    if (v.bytes == sizeof(std::uint64_t) && reinterpret_cast<std::uintptr_t>(v.dest) % 8 == 0) {
      std::uint64_t word = 0;  // readers may look at a pointer without a lock
      std::memcpy(&word, &bytes_[v.at], sizeof word);
      store_ordered(*static_cast<std::uint64_t*>(v.dest), word);
    } else {
      std::memcpy(v.dest, &bytes_[v.at], v.bytes);
    }
  }
  return tx.commit();
}

Status Actions::publish(const char* file, int line) {
  struct Empty {
    Actions& actions;
    ~Empty() { actions.cancel(); }
  } empty{*this};
  Transaction tx(pool_, file, line);
  return publish_in(tx);
}

// If this is the first call of its thread, and there is no memory for it, the blocks stay reserved
// until the next open.
void Actions::cancel() noexcept {
  for (const Reserved& block : blocks_) {
    static_cast<void>(pm::had_memory([&] { static_cast<void>(pool_.cancel(block)); }));
  }
  blocks_.clear();
  sizes_.clear();
  values_.clear();
  bytes_.clear();
  freed_.clear();
}

}  // namespace TENUTO_NS
