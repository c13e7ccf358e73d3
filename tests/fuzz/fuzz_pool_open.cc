// Damaged pool files. The input is a list of patches to one of a few small pools (closed, crashed,
// crashed inside a split or a transaction). A flag gives patched lines right checksums, so that the
// damage passes that check. Then the pool is opened and used.
//
// Promises: an error with a report, or a working store (always, if there is no patch). A pool that
// validates accepts writes, closes, opens again and holds what it held.
//
//   byte 0: base (low bits), reseal (bit 7);   then patches until the end: see patch()
#include <cstring>
#include <string>

#include "fuzz/bases.h"
#include "fuzz/input.h"
#include "support/named_records.h"
#include "tenuto/collection.h"
#include "tenuto/kv.h"

namespace tenuto::fuzz {
namespace {

constexpr std::size_t kPatchesMax = 64;
constexpr std::size_t kWalkMax = 5000;
constexpr int kDisturbed = 30;

constexpr BaseName kBases[] = {BaseName::clean, BaseName::unclean, BaseName::split,
                               BaseName::pending, BaseName::empty};
constexpr BaseName kNamedBases[] = {BaseName::named, BaseName::named_open};
constexpr unsigned kNamedFrom = 56;  // of 64: from here on bases with named collections

BaseName base_of(unsigned head) {
  const unsigned n = head % 64;
  return n < kNamedFrom ? kBases[n % std::size(kBases)] : kNamedBases[n % std::size(kNamedBases)];
}

class Patcher {
 public:
  Patcher(Input& input, const WorkFile& file, const Base& b, bool sealed)
      : input_(input), file_(file), base_(b), sealed_(sealed) {}

  // One patch: what to do, where, and with which value. Returns false after a cut of the file.
  bool patch(WorkFile& file) {
    const unsigned op = input_.u8() % 12;
    const std::uint64_t at = place();
    auto& byte = file_.at<std::uint8_t>(at);
    auto& word = file_.at<std::uint64_t>(round_down(at, 8));
    switch (op) {
      case 0:
        byte ^= static_cast<std::uint8_t>(1u << input_.below(8));
        break;
      case 1:
        byte = input_.u8();
        break;
      case 2:
        word = input_.u64();
        break;
      case 3:
        word = input_.u8();
        break;
      case 4:
        word = odd_word();
        break;
      case 5:  // a pointer to something else in the pool
        word = place();
        break;
      case 6:
        word += static_cast<std::uint64_t>(static_cast<std::int8_t>(input_.u8()));
        break;
      case 7:
        std::memset(&file_.at<std::byte>(line_of(at)), input_.u8(), kLineBytes);
        break;
      case 8:
        copy(at, place(), kLineBytes);
        break;
      case 9:
        copy(at, place(), kFrameBytes);
        break;
      case 10:
        word = file_.at<std::uint64_t>(round_down(place(), 8));
        break;
      default:
        if (input_.u8() % 8 != 0) break;
        file.cut(at);
        return false;
    }
    if (sealed_) reseal(file_, base_, at);
    return true;
  }

 private:
  static std::uint64_t line_of(std::uint64_t at) { return round_down(at, kLineBytes); }

  // An offset in the pool: mostly in a line that holds something.
  std::uint64_t place() {
    const unsigned how = input_.u8();
    const std::uint64_t in_line = how % kLineBytes;
    if (how >= 0xf0) return input_.u32() % file_.bytes();
    return base_.lines[input_.u16() % base_.lines.size()] + in_line;
  }
  std::uint64_t odd_word() {
    const std::uint64_t words[] = {0,
                                   ~0ull,
                                   1ull << 63,
                                   (1ull << 48) - 1,
                                   kPoolBytes,
                                   kPoolBytes - 8,
                                   kPoolBytes - kLineBytes,
                                   kPoolBytesMax,
                                   0xffffffff,
                                   64u << 10};
    return words[input_.below(std::size(words))];
  }
  void copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    std::memmove(&file_.at<std::byte>(round_down(to, bytes)),
                 &file_.at<std::byte>(round_down(from, bytes)), bytes);
  }

  Input& input_;
  const WorkFile& file_;
  const Base& base_;
  const bool sealed_;
};

std::size_t walk(Store& store, bool forward) {
  std::size_t seen = 0;
  Iterator it = store.iterator();
  forward ? it.seek_first() : it.seek_last();
  while (it.valid() && seen < kWalkMax) {
    seen += 1;
    volatile char last = 0;  // what the iterator returns must be readable
    if (!it.key().empty()) last = it.key().back();
    if (!it.value().empty()) last = it.value().back();
    static_cast<void>(last);
    forward ? it.next() : it.prev();
  }
  return seen;
}

// Makes calls of every kind on a pool in any state. None may crash.
void use(Store& store, bool sound) {
  std::string value;
  for (int i = 0; i < 300; i += 7) static_cast<void>(store.get(base_key(i), value));
  const std::size_t forward = walk(store, true);
  const std::size_t backward = walk(store, false);
  if (sound) FUZZ_REQUIRE(forward == backward, "a sound store has two lengths");
  // Values are not checked: a patched record with a right checksum has a value that was never
  // written.
  static const std::vector<test::NamedRecords> named = named_of_bases();
  const std::string wrong = test::read_named(store, named, {.exact = false, .values = false});
  FUZZ_REQUIRE(wrong.empty(), wrong);
  std::vector<test::NamedRecords> written = named;
  test::disturb_named(&store, written, kDisturbed);
  const auto fine = [sound](Status s, const char* what) {
    if (sound)
      FUZZ_REQUIRE(s == Status::ok || s == Status::full,
                   std::string(what) + " of a sound store: " + status_name(s));
  };
  fine(store.put("new", "record"), "put");
  fine(store.put(base_key(5), std::string(700, 'x')), "put");
  const Status erased = store.erase(base_key(14));
  if (erased != Status::not_found) fine(erased, "erase");
  WriteBatch batch;
  for (int i = 100; i < 103; ++i) batch.put(base_key(i), "batch");
  batch.put("key/0", std::string(5000, 'y'));
  fine(store.write(batch), "write");
  auto root = store.pool().root<Root>("fuzz");
  if (!root) return;
  static_cast<void>(store.pool().free_from((*root)->word[0]));
  static_cast<void>(store.pool().free_from((*root)->word[5]));
  static_cast<void>(store.pool().malloc_to(5000, (*root)->word[10]));
  static_cast<void>(store.pool().run([&](Transaction& tx) {
    TENUTO_TRY(tx.add((*root)->number[3]));
    (*root)->number[3] += 1;
    TENUTO_TRY(tx.free((*root)->word[3].get()));
    return tx.alloc(100) ? Status::ok : Status::full;
  }));
}

void open_and_use(const WorkFile& file, bool patched) {
  Report report;
  auto store = Store::open(file.path(), pool_options(), &report);
  FUZZ_REQUIRE(store || patched, "a pool as it was left does not open: " + report.text());
  if (!store) {
    FUZZ_REQUIRE(!report.what.empty(), "an error without a report");
    return;
  }
  const bool sound = store->validate(&report) == Status::ok;
  FUZZ_REQUIRE(sound || patched, "a pool as it was left is not sound: " + report.text());
  use(*store, sound);
  if (sound) {
    FUZZ_REQUIRE(store->validate(&report) == Status::ok, "spoiled by use: " + report.text());
  }
  const std::uint64_t records = sound ? store->stats().records : 0;
  const Status closed = store->close();
  if (sound) FUZZ_REQUIRE(closed == Status::ok, status_name(closed));
  auto again = Store::open(file.path(), pool_options(), &report);
  if (!sound) {
    if (again) static_cast<void>(again->validate(&report));
    return;
  }
  FUZZ_REQUIRE(again, "a sound store does not open again: " + report.text());
  FUZZ_REQUIRE(again->validate(&report) == Status::ok, "spoiled by a close: " + report.text());
  FUZZ_REQUIRE(again->stats().records == records, "records lost by a close");
}

}  // namespace
}  // namespace tenuto::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace tenuto::fuzz;
  static WorkFile file(kPoolBytesMax);
  Input input(data, bytes);
  const unsigned head = input.u8();
  const Base& b = base(base_of(head));
  file.load(b.image);
  const bool patched = !input.done();
  Patcher patcher(input, file, b, (head & 0x80) != 0);
  for (std::size_t i = 0; i < kPatchesMax && !input.done() && patcher.patch(file); ++i) {
  }
  open_and_use(file, patched);
  return 0;
}
