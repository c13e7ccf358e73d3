// A copy of a store as after a kill, with a forged journal whose checksums are all right. The open
// may return anything with a report, but must not change the size of the files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "process.h"
#include "support/journal_forge.h"

namespace tenuto::life {
namespace fs = std::filesystem;
namespace {

constexpr int kForgeries = 4;

using Bytes = std::vector<unsigned char>;

Bytes read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_bytes(const std::string& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

// A number near the bound of something, or a random one.
std::uint64_t odd(Random& random, std::uint64_t pool_bytes, std::uint64_t journal_bytes) {
  const std::uint64_t words[] = {0,
                                 64,
                                 4096,
                                 8192,
                                 journal_bytes,
                                 pool_bytes,
                                 pool_bytes / kLineBytes,
                                 1 << 30,
                                 1ull << 32,
                                 1ull << 50,
                                 1ull << 56,
                                 1ull << 62,
                                 ~0ull};
  if (random.one_in(6)) return random();
  if (random.one_in(4)) return random.below(3);
  const std::uint64_t by = random.below(3) * (random.one_in(2) ? 1 : 100);
  const std::uint64_t word = words[random.below(std::size(words))];
  return random.one_in(2) ? word + by : word - by;
}

void forge_header(test::JournalForge& forge, Random& random, std::uint64_t n) {
  pm::JournalHeader h = forge.header();
  std::uint64_t* const words[] = {&h.start, &h.start_block, &h.ring_bytes, &h.sequence, &h.life};
  std::uint64_t& word = *words[random.below(std::size(words))];
  word = random.one_in(3) ? word + n % 4096 : n;
  forge.put_header(h);
}

void forge_lines(test::JournalForge& forge, Random& random, std::uint64_t n) {
  const std::size_t at = forge.blocks()[random.below(forge.blocks().size())];
  pm::JournalBlock b = forge.block(at);
  // The block's sizes may come from an earlier forgery, so they are checked, too.
  const bool sane = b.raw_bytes <= forge.bytes().size() && b.lines <= b.raw_bytes / kLineBytes &&
                    b.packed_bytes <= b.raw_bytes;
  const std::vector<std::byte> raw = sane ? forge.raw(at) : std::vector<std::byte>();
  std::vector<pm::LineImage> lines(sane ? b.lines : 0);
  if (!lines.empty() && !random.one_in(4) &&
      pm::unpack_lines(raw.data(), raw.size(), lines.size(), lines.data())) {
    lines.resize(1 + random.below(lines.size()));
    lines.back().line = random.one_in(2) ? n : n / kLineBytes;
    if (forge.put_lines(at, lines)) return;
  }
  std::uint32_t* const words[] = {&b.lines, &b.raw_bytes, &b.packed_bytes, &b.kind};
  *words[random.below(std::size(words))] = static_cast<std::uint32_t>(n);
  forge.put_block(at, b);
}

}  // namespace

void Process::forge(const Step& step) {
  const unsigned s = static_cast<unsigned>(step.a[0]) % kStores;
  const std::string from = world_.path_of(s, 0), to = world_.folder + "/forged.tnt";
  std::error_code ignored;
  if (!fs::exists(from, ignored) || !fs::exists(from + ".journal", ignored)) return;
  const Bytes journal = read_bytes(from + ".journal");
  Random random{static_cast<std::uint64_t>(step.a[1])};
  for (int i = 0; i < kForgeries; ++i) {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing, ignored);
    const std::uint64_t bytes = fs::file_size(to, ignored);
    test::JournalForge forge(journal);
    for (std::uint64_t n = 1 + random.below(2); n > 0; --n) {
      const std::uint64_t number = odd(random, bytes, journal.size());
      forge.blocks().empty() || random.one_in(2) ? forge_header(forge, random, number)
                                                 : forge_lines(forge, random, number);
    }
    write_bytes(to + ".journal", forge.bytes());
    open_forged(s, to);
    if (fs::file_size(to, ignored) > std::max(bytes, world_.story.pool_bytes_max)) {
      world_.broken("a forged journal made the pool longer");
    }
    const bool there = fs::exists(to + ".journal", ignored);
    if (there && fs::file_size(to + ".journal", ignored) > journal.size()) {
      world_.broken("a forged journal became longer");
    }
    ++world_.shared.progress;
  }
  fs::remove(to, ignored);
  fs::remove(to + ".journal", ignored);
}

// A store that opens and validates can be used.
void Process::open_forged(unsigned s, const std::string& path) {
  StoreOptions options = world_.options_of(s, 0);
  options.create_if_missing = false;
  Report report;
  auto opened = Store::open(path, options, &report);
  if (!opened) {
    if (report.text().empty()) world_.broken("a forged journal is refused without words");
    return;
  }
  if (opened->validate() != Status::ok) return;
  const Status put = opened->put(key_text(world_.story.numbers, 3), "v");
  if (put != Status::ok && put != Status::full) {
    world_.broken("behind a forged journal a put says " + std::string(status_name(put)));
  }
}

}  // namespace tenuto::life
