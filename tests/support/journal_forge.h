// A journal file as bytes, for tests of what an open accepts. Everything it writes gets a right
// checksum.
#pragma once

#include <lz4.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "journal/format.h"
#include "journal/lines.h"

namespace tenuto::test {

class JournalForge {
 public:
  explicit JournalForge(std::vector<unsigned char> bytes) : bytes_(std::move(bytes)) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{pm::kJournalUnitBytes}}) {
      const auto h = read<pm::JournalHeader>(at);
      if (h.crc == pm::crc_of(h) && h.sequence > header_.sequence) header_ = h;
    }
    for (std::size_t at = pm::kJournalRingOffset; at + sizeof(pm::JournalBlock) <= bytes_.size();
         at += pm::kJournalUnitBytes) {
      const auto b = read<pm::JournalBlock>(at);
      const bool counts = b.magic == pm::kJournalBlockMagic && b.crc == pm::crc_of(b, salt()) &&
                          b.number >= header_.start_block;
      if (counts) blocks_.push_back(at);
    }
    std::sort(blocks_.begin(), blocks_.end(),
              [&](std::size_t a, std::size_t b) { return block(a).number < block(b).number; });
  }

  const std::vector<unsigned char>& bytes() const { return bytes_; }
  const pm::JournalHeader& header() const { return header_; }
  const std::vector<std::size_t>& blocks() const { return blocks_; }
  pm::JournalBlock block(std::size_t at) const { return read<pm::JournalBlock>(at); }

  // Stores the header as its newest copy.
  void put_header(pm::JournalHeader h) {
    h.crc = pm::crc_of(h);
    std::memcpy(&bytes_[(h.sequence & 1) * pm::kJournalUnitBytes], &h, sizeof h);
  }
  void put_block(std::size_t at, pm::JournalBlock b) {
    b.crc = pm::crc_of(b, salt());
    std::memcpy(&bytes_[at], &b, sizeof b);
  }

  // The line numbers and line images of a block, unpacked. Empty if its forged head claims more
  // than there is.
  std::vector<std::byte> raw(std::size_t at) const {
    const pm::JournalBlock b = block(at);
    const std::size_t rest = bytes_.size() - at - sizeof b;
    if (b.packed_bytes > rest || b.raw_bytes >= pm::kJournalBlockBytesMax) return {};
    std::vector<std::byte> out(b.raw_bytes);
    if (out.empty()) return out;
    const auto* payload = reinterpret_cast<const char*>(&bytes_[at + sizeof b]);
    if (b.packed_bytes == b.raw_bytes) {
      std::memcpy(out.data(), payload, out.size());
    } else {
      ::LZ4_decompress_safe(payload, reinterpret_cast<char*>(out.data()),
                            static_cast<int>(b.packed_bytes), static_cast<int>(b.raw_bytes));
    }
    return out;
  }
  // Packs `raw` into the place of the block. Returns false if it is empty or does not fit.
  bool put_raw(std::size_t at, const std::vector<std::byte>& raw, std::uint32_t lines) {
    pm::JournalBlock b = block(at);
    const std::uint64_t room = pm::ring_bytes_of(b);
    if (raw.empty()) return false;
    std::vector<char> packed(
        static_cast<std::size_t>(::LZ4_compressBound(static_cast<int>(raw.size()))));
    int n = ::LZ4_compress_default(reinterpret_cast<const char*>(raw.data()), packed.data(),
                                   static_cast<int>(raw.size()), static_cast<int>(packed.size()));
    if (n <= 0 || static_cast<std::size_t>(n) >= raw.size()) {
      n = static_cast<int>(raw.size());
      std::memcpy(packed.data(), raw.data(), raw.size());
    }
    b.packed_bytes = static_cast<std::uint32_t>(n);
    b.raw_bytes = static_cast<std::uint32_t>(raw.size());
    b.lines = lines;
    if (pm::ring_bytes_of(b) != room) return false;
    std::memcpy(&bytes_[at + sizeof b], packed.data(), static_cast<std::size_t>(n));
    b.payload_crc = pm::crc32c(packed.data(), static_cast<std::size_t>(n), salt());
    put_block(at, b);
    return true;
  }
  // The same with lines.
  bool put_lines(std::size_t at, const std::vector<pm::LineImage>& lines) {
    std::vector<std::byte> raw;
    pm::pack_lines(lines, raw);
    return put_raw(at, raw, static_cast<std::uint32_t>(lines.size()));
  }
  std::uint32_t salt() const {
    return pm::salt_of(header_.pool_id, header_.journal_id, header_.life);
  }

 private:
  template <class T>
  T read(std::size_t at) const {
    T t{};
    if (at + sizeof t <= bytes_.size()) std::memcpy(&t, &bytes_[at], sizeof t);
    return t;
  }

  std::vector<unsigned char> bytes_;
  pm::JournalHeader header_{};
  std::vector<std::size_t> blocks_;  // the blocks that count, in order
};

}  // namespace tenuto::test
