// Forged journals: the journal of a killed pool, with changed fields in its header and blocks, and
// changed line numbers and line images in blocks. All checksums are right.
//
// Promises: an error with a report, or a working store. Neither the pool file nor the journal gets
// longer.
//
//   the input is a list of forgeries: see forge_one()
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "fuzz/bases.h"
#include "fuzz/input.h"
#include "support/journal_forge.h"
#include "tenuto/kv.h"

namespace tenuto::fuzz {
namespace {

constexpr int kForgeriesMax = 32;
constexpr int kRecords = 40;
constexpr std::size_t kRingBytes = 256u << 10;

// The path is the same in a child.
const std::string& journal_path() {
  static const std::string path = "/dev/shm/tenuto-fuzz-journal-" + std::to_string(::getpid());
  return path;
}

StoreOptions journal_options(Medium medium) {
  StoreOptions o = pool_options();
  o.pool.medium = medium;
  o.pool.journal.path = journal_path();
  o.pool.journal.bytes = kRingBytes;
  o.pool.journal.sync_every_ms = 0;
  return o;
}

struct Killed {
  Image pool;
  std::vector<unsigned char> journal;
};

std::vector<unsigned char> read_file(const std::string& path) {
  std::vector<unsigned char> bytes;
  std::FILE* f = std::fopen(path.c_str(), "rb");
  FUZZ_REQUIRE(f != nullptr, "a journal to read");
  for (int c = std::fgetc(f); c != EOF; c = std::fgetc(f)) {
    bytes.push_back(static_cast<unsigned char>(c));
  }
  std::fclose(f);
  return bytes;
}

void write_file(const std::string& path, const std::vector<unsigned char>& bytes) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  FUZZ_REQUIRE(f != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), f) == bytes.size(),
               "a journal to write");
  std::fclose(f);
}

// Puts and syncs in a process that ends without a close.
void write_and_die(const std::string& path) {
  const pid_t pid = ::fork();
  FUZZ_REQUIRE(pid >= 0, "a child");
  if (pid == 0) {
    Report report;
    auto store = Store::open(path, journal_options(Medium::journal), &report);
    FUZZ_REQUIRE(store, report.text());
    for (int i = 0; i < kRecords; ++i) {
      FUZZ_REQUIRE(store->put(base_key(i), base_value(i)) == Status::ok, "put");
      if (i % 5 != 4) continue;
      FUZZ_REQUIRE(store->sync() == Status::ok, "sync");
    }
    std::_Exit(0);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  FUZZ_REQUIRE(status == 0, "the child's end");
}

// The files after a kill, with blocks to replay. It tries again if a checkpoint in the background
// has left no blocks.
Killed make_killed() {
  constexpr int kTries = 100;
  const std::string path = journal_path() + ".pool";
  Killed k;
  for (int i = 0; i < kTries; ++i) {
    ::unlink(path.c_str());
    ::unlink(journal_path().c_str());
    write_and_die(path);
    k.pool = read_image(path);
    k.journal = read_file(journal_path());
    if (!test::JournalForge(k.journal).blocks().empty()) break;
  }
  FUZZ_REQUIRE(!test::JournalForge(k.journal).blocks().empty(), "a journal with blocks");
  ::unlink(path.c_str());
  ::unlink(journal_path().c_str());
  return k;
}

class Forger {
 public:
  Forger(Input& input, test::JournalForge& forge, std::uint64_t pool_bytes)
      : in_(input), forge_(forge), pool_bytes_(pool_bytes) {}

  void forge_one() {
    switch (in_.u8() % 4) {
      case 0:
        return header();
      case 1:
        return block();
      case 2:
        return lines();
      default:
        return payload();
    }
  }

 private:
  std::uint64_t odd() {
    const std::uint64_t words[] = {0,          1,          63,          64,
                                   4095,       4096,       8192,        kRingBytes,
                                   ~0ull,      ~4095ull,   1ull << 30,  1ull << 32,
                                   1ull << 56, 1ull << 62, pool_bytes_, pool_bytes_ / kLineBytes};
    const unsigned how = in_.u8();
    if (how < 0xc0) return words[how % std::size(words)] + in_.u8() % 3 - 1;
    return in_.u64();
  }
  void header() {
    pm::JournalHeader h = forge_.header();
    std::uint64_t* const words[] = {&h.ring_bytes,  &h.sequence,   &h.life,   &h.start,
                                    &h.start_block, &h.journal_id, &h.pool_id};
    const unsigned which = in_.u8() % 9;
    if (which < 7) *words[which] = odd();
    if (which == 7) h.state = static_cast<std::uint32_t>(odd());
    if (which == 8) h.temporary = static_cast<std::uint32_t>(odd());
    forge_.put_header(h);
  }
  std::size_t place() {
    const auto& all = forge_.blocks();
    return all[in_.u8() % all.size()];
  }
  void block() {
    const std::size_t at = place();
    pm::JournalBlock b = forge_.block(at);
    std::uint32_t* const halves[] = {&b.kind, &b.lines, &b.raw_bytes, &b.packed_bytes};
    const unsigned which = in_.u8() % 7;
    if (which < 4) *halves[which] = static_cast<std::uint32_t>(odd());
    if (which == 4) b.number = odd();
    if (which == 5) b.position = odd();
    if (which == 6) b.life = odd();
    forge_.put_block(at, b);
  }
  void lines() {
    std::byte image[kLineBytes];
    std::fill(std::begin(image), std::end(image), std::byte{in_.u8()});
    std::vector<pm::LineImage> all;
    std::uint64_t line = 0;
    for (unsigned n = 1 + in_.u8() % 4; n > 0; --n) all.push_back({line += odd(), image});
    static_cast<void>(forge_.put_lines(place(), all));
  }
  void payload() {
    const std::size_t at = place();
    std::vector<std::byte> raw = forge_.raw(at);
    for (unsigned n = 1 + in_.u8() % 8; n > 0 && !raw.empty(); --n) {
      raw[in_.u16() % raw.size()] = std::byte{in_.u8()};
    }
    static_cast<void>(forge_.put_raw(at, raw, forge_.block(at).lines));
  }

  Input& in_;
  test::JournalForge& forge_;
  const std::uint64_t pool_bytes_;
};

void open_and_use(const WorkFile& file, Medium medium, bool forged) {
  Report report;
  auto store = Store::open(file.path(), journal_options(medium), &report);
  FUZZ_REQUIRE(store || forged, "a pair as it was left does not open: " + report.text());
  if (!store) {
    FUZZ_REQUIRE(!report.what.empty(), "an error without a report");
    return;
  }
  const bool sound = store->validate(&report) == Status::ok;
  FUZZ_REQUIRE(sound || forged, "a pair as it was left is not sound: " + report.text());
  std::string value;
  for (int i = 0; i < kRecords; ++i) {
    const Status s = store->get(base_key(i), value);
    FUZZ_REQUIRE(forged || (s == Status::ok && value == base_value(i)), "a record is missing");
  }
  Iterator it = store->iterator();
  std::size_t seen = 0;
  for (it.seek_first(); it.valid() && seen < 1000; it.next()) seen += 1;
  const Status put = store->put("new", "record");
  FUZZ_REQUIRE(!sound || put == Status::ok || put == Status::full, status_name(put));
}

}  // namespace
}  // namespace tenuto::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace tenuto;
  using namespace tenuto::fuzz;
  static const Killed killed = make_killed();
  static WorkFile file(kPoolBytesMax);
  file.load(killed.pool);
  Input input(data, bytes);
  const Medium medium = input.u8() % 4 == 0 ? Medium::journal : Medium::cache;
  const bool forged = !input.done();
  test::JournalForge forge(killed.journal);
  Forger forger(input, forge, killed.pool.bytes);
  for (int i = 0; i < kForgeriesMax && !input.done(); ++i) forger.forge_one();
  write_file(journal_path(), forge.bytes());
  open_and_use(file, medium, forged);
  FUZZ_REQUIRE(file.bytes() <= kPoolBytesMax, "the pool was extended");
  struct stat st {};
  FUZZ_REQUIRE(::stat(journal_path().c_str(), &st) != 0 ||
                   static_cast<std::size_t>(st.st_size) <= killed.journal.size(),
               "the journal was extended");
  ::unlink(journal_path().c_str());
  return 0;
}
