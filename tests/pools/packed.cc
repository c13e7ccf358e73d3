#include "pools/packed.h"

#include <lz4frame.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>

namespace tenuto::test {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kFileBytesMax = 1ull << 30;  // a damaged length must not make a huge file
constexpr std::size_t kPiece = 256u << 10;

std::optional<std::string> read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

bool write_all(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return static_cast<bool>(out.flush());
}

void append_word(std::string& out, std::uint64_t word) {
  out.append(reinterpret_cast<const char*>(&word), sizeof word);
}

std::uint64_t word_at(std::string_view bytes, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

std::optional<std::string> decompressed(std::string_view frame) {
  LZ4F_dctx* raw = nullptr;
  if (LZ4F_isError(LZ4F_createDecompressionContext(&raw, LZ4F_VERSION)) != 0) return std::nullopt;
  const std::unique_ptr<LZ4F_dctx, void (*)(LZ4F_dctx*)> context(
      raw, [](LZ4F_dctx* c) { (void)LZ4F_freeDecompressionContext(c); });
  std::string all;
  std::string piece(kPiece, '\0');
  std::size_t hint = 1;
  while (hint != 0) {
    std::size_t taken = frame.size();
    std::size_t made = piece.size();
    hint = LZ4F_decompress(raw, piece.data(), &made, frame.data(), &taken, nullptr);
    if (LZ4F_isError(hint) != 0 || (taken == 0 && made == 0)) return std::nullopt;
    frame.remove_prefix(taken);
    all.append(piece, 0, made);
  }
  return all;
}

}  // namespace

std::string pack_file(const std::string& from, const std::string& to) {
  const auto file = read_all(from);
  if (!file) return from + ": cannot be read";
  std::string pages;
  append_word(pages, file->size());
  for (std::size_t at = 0; at < file->size(); at += kPageBytes) {
    std::string page = file->substr(at, kPageBytes);
    if (page.find_first_not_of('\0') == std::string::npos) continue;
    page.resize(kPageBytes);
    append_word(pages, at);
    pages += page;
  }
  LZ4F_preferences_t how{};
  how.compressionLevel = 12;
  how.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  std::string frame(LZ4F_compressFrameBound(pages.size(), &how), '\0');
  const std::size_t bytes =
      LZ4F_compressFrame(frame.data(), frame.size(), pages.data(), pages.size(), &how);
  if (LZ4F_isError(bytes) != 0) return from + ": " + LZ4F_getErrorName(bytes);
  frame.resize(bytes);
  return write_all(to, frame) ? std::string() : to + ": cannot be written";
}

std::string unpack_file(const std::string& from, const std::string& to) {
  const auto frame = read_all(from);
  if (!frame) return from + ": cannot be read";
  const auto pages = decompressed(*frame);
  if (!pages || pages->size() < sizeof(std::uint64_t)) return from + ": no whole LZ4 frame";
  const std::uint64_t file_bytes = word_at(*pages, 0);
  constexpr std::size_t kEntry = sizeof(std::uint64_t) + kPageBytes;
  const bool fits = file_bytes <= kFileBytesMax && (pages->size() - 8) % kEntry == 0;
  if (!fits || !write_all(to, {})) return from + ": no list of pages, or no place for it";
  {
    std::ofstream out(to, std::ios::binary | std::ios::in);
    for (std::size_t at = 8; at < pages->size(); at += kEntry) {
      const std::uint64_t offset = word_at(*pages, at);
      if (offset >= file_bytes) return from + ": a page beyond the end";
      out.seekp(static_cast<std::streamoff>(offset));
      const std::size_t bytes = std::min<std::uint64_t>(kPageBytes, file_bytes - offset);
      out.write(pages->data() + at + 8, static_cast<std::streamsize>(bytes));
    }
    if (!out.flush()) return to + ": cannot be written";
  }
  std::error_code error;
  std::filesystem::resize_file(to, file_bytes, error);
  return error ? to + ": " + error.message() : std::string();
}

}  // namespace tenuto::test
