#include "tenuto/string.h"

#include <cstring>

#include "pm/plant.h"
#include "tx/containers.h"

namespace TENUTO_NS {

namespace {
void copy(char* to, std::string_view text) {
  if (!text.empty()) std::memmove(to, text.data(), text.size());
}
}  // namespace

// REQUIRES: it fits; it is not a part of this.
void String::set_text(std::string_view text) noexcept {
  std::memset(text_, 0, sizeof text_);
  copy(text_, text);
  size_ = text.size();
}

void String::set_block(char* block, std::uint64_t size, std::uint64_t room) noexcept {
  size_ = size;
  block_ = {{PtrWord::encode(&block_.word, block)}, room};
}

void String::take(const String& from) noexcept {
  if (from.small()) {
    set_text(from.view());
  } else {
    set_block(from.block(), from.size_, from.block_.room);
  }
}

// Becomes both texts in a new block, and frees the old one. They may be parts of this.
Status String::grow(Transaction& tx, std::string_view first, std::string_view second) {
  const std::uint64_t size = first.size() + second.size();
  const bool grows = !small() && !second.empty();
  const std::uint64_t bytes =
      grows ? tx::grown_block(block_.room + 1, size + 1) : tx::whole_block(size + 1);
  tx::LooseBlock block(tx, bytes);
  TENUTO_TRY(block.status());
  char* const text = block.get<char>();
  copy(text, first);
  copy(text + first.size(), second);
  text[size] = 0;
  TENUTO_TRY(tx.add_later(*this));
  if (!small() && !TENUTO_PLANT("tx_string_old_block_leaks")) {
    TENUTO_TRY(tx.free(this->block()));
  }
  TENUTO_TRY(tx.add(*this));
  block.attached();
  set_block(text, size, bytes - 1);
  return Status::ok;
}

Status String::assign(Transaction& tx, std::string_view text) {
  if (text.size() > tx::kContainerBytesMax) return Status::too_large;
  if (text.size() > kInlineMax) return grow(tx, text, {});
  char bytes[kInlineMax];
  copy(bytes, text);
  TENUTO_TRY(tx.add_later(*this));
  if (!small()) TENUTO_TRY(tx.free(block()));
  if (!TENUTO_PLANT("tx_string_stored_before_its_entry")) TENUTO_TRY(tx.add(*this));
  set_text({bytes, text.size()});
  return Status::ok;
}

Status String::append(Transaction& tx, std::string_view text) {
  if (text.size() > tx::kContainerBytesMax - size_) return Status::too_large;
  const std::uint64_t size = size_ + text.size();
  if (text.empty()) return tx.status();
  if (size > capacity()) return grow(tx, view(), text);
  // What is behind the last zero byte has no value. That byte has one.
  char* const end = (small() ? text_ : block()) + size_;
  if (!small() && text.size() > 0) TENUTO_TRY(tx.overwrite(end + 1, text.size()));
  const bool logs_end = !TENUTO_PLANT("tx_string_end_not_logged");
  if (!small() && logs_end) TENUTO_TRY(tx.add_later(end, 1));
  TENUTO_TRY(tx.add_later(*this));
  TENUTO_TRY(tx.ready());
  copy(end, text);
  end[text.size()] = 0;
  size_ = size;
  return Status::ok;
}

Status String::swap(Transaction& tx, String& o) {
  TENUTO_TRY(tx.add_later(*this));
  TENUTO_TRY(tx.add_later(o));
  TENUTO_TRY(tx.ready());
  String mine;
  mine.take(*this);
  take(o);
  o.take(mine);
  return Status::ok;
}

Status String::construct(Transaction& tx, std::string_view text) {
  size_ = 0;
  if (text.size() > tx::kContainerBytesMax) return Status::too_large;
  if (text.size() <= kInlineMax) {
    set_text(text);
    return Status::ok;
  }
  const std::uint64_t bytes = tx::whole_block(text.size() + 1);
  const Result<void*> block = tx.alloc(bytes);
  if (!block) return block.error();
  char* const to = static_cast<char*>(*block);
  copy(to, text);
  to[text.size()] = 0;
  set_block(to, text.size(), bytes - 1);
  return Status::ok;
}

}  // namespace TENUTO_NS
