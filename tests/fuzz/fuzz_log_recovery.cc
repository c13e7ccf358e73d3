// Logs that no crash leaves: intents, retired sequences, transaction lines, undo entries and log
// frames with right checksums and any fields, in the lanes of a crashed pool.
//
// Promises: recovery ends with an error and a report, or with a pool. If the logs touch only plain
// data, a pool that validates recovers to the same state if the process dies at once, accepts work
// and closes cleanly. Undo entries restore exactly the bytes they hold.
//
//   the input is a list of log records: see Logs::write_one()
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/bases.h"
#include "fuzz/input.h"
#include "heap/intent_line.h"
#include "pm/log.h"
#include "store/kv/store_parts.h"
#include "tx/format.h"
#include "tx/undo.h"

namespace tenuto::fuzz {
namespace {

constexpr int kRecordsMax = 64;
constexpr std::size_t kLanes = 3;  // lanes that get logs; the pool has more
constexpr std::size_t kFrames = 4;
constexpr std::size_t kNumbers = std::size(Root{}.number);

using Numbers = std::array<std::uint64_t, kNumbers>;

struct Undo {
  std::size_t lane, area, line;
  std::uint64_t sequence, offset;
  std::string bytes;
};

class Logs {
 public:
  Logs(Input& input, const WorkFile& file, const Base& b) : in_(input), file_(file), base_(b) {
    const auto& head = file.at<pm::HeadPage>(pm::kHeadPageOffset);
    root_ = offset_of(PtrWord::decode(&head.roots[0], head.roots[0]));
    std::memset(&line(0, 0), 0, pm::kLaneSegmentBytes);
    const Root& root = file.at<Root>(root_);
    for (const auto& word : root.word) {
      if (word) blocks_.push_back(offset_of(word.get()));
    }
    std::copy(std::begin(root.number), std::end(root.number), numbers_.begin());
  }

  // One record: its kind, its lane, then its fields.
  void write_one() {
    const unsigned kind = in_.u8() % 10;
    const std::size_t lane = in_.below(kLanes);
    switch (kind) {
      case 0:
      case 1:
        return intent(lane);
      case 2: {
        const unsigned said = in_.u8();
        line(lane, pm::kLaneRetiredLine + said % pm::kLaneRetiredLines).word[0] = said;
        return;
      }
      case 3:
        return tx_line(lane);
      case 4:
      case 5:
      case 6:
        return undo(lane);
      case 7:
        return entry(lane, tx::EntryKind::alloc);
      case 8:
        return entry(lane, tx::EntryKind::free);
      default:
        return log_frame(lane);
    }
  }

  // Computes the root's numbers after recovery. Returns false if not only undo entries decide them.
  bool predict(Numbers& numbers) const {
    numbers = numbers_;
    if (!plain_ || wild_) return false;
    std::vector<Undo> entries = undo_;
    std::sort(entries.begin(), entries.end(), [](const Undo& a, const Undo& b) {
      return std::pair(a.area, a.line) > std::pair(b.area, b.line);
    });
    const std::uint64_t first = root_ + offsetof(Root, number);
    std::size_t open_lane = kLanes;
    for (const Undo& u : entries) {
      if (u.offset < first || u.offset + u.bytes.size() > first + sizeof numbers) return false;
      if (u.sequence != committed_[u.lane] + 1) continue;
      if (open_lane != kLanes && open_lane != u.lane) return false;  // lanes are undone in no order
      open_lane = u.lane;
      std::memcpy(reinterpret_cast<char*>(numbers.data()) + (u.offset - first), u.bytes.data(),
                  u.bytes.size());
    }
    return true;
  }
  std::uint64_t root() const { return root_; }
  // Whether an undo entry or a destination may have changed data of the heap or the store.
  bool wild() const { return wild_; }

 private:
  std::uint64_t offset_of(const void* p) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(p) - file_.data());
  }
  pm::LogLine& line(std::size_t lane, std::size_t i) const {
    return file_.at<pm::LogLine>(pm::kLanesOffset + lane * pm::kLaneBytes + i * kLineBytes);
  }

  // A block, or an offset that could be taken for one.
  std::uint64_t block() {
    const unsigned how = in_.u8();
    if (how < 0x80) return blocks_[how % blocks_.size()];
    if (how < 0xa0) return base_.leaves[how % base_.leaves.size()];
    if (how < 0xc0) return std::next(base_.slot.begin(), in_.u8() % 100)->first;
    if (how < 0xe0) return base_.lines[in_.u16() % base_.lines.size()];
    if (how < 0xf0) return in_.u32() % kPoolBytes;
    return how < 0xf8 ? in_.u64() : blocks_[how % blocks_.size()] + in_.u8();
  }
  // A word that a pointer may be in.
  std::uint64_t destination() {
    const unsigned how = in_.u8();
    wild_ = wild_ || how >= 0xa0;
    if (how < 0xa0) return root_ + how % 16 * 8;
    if (how < 0xc0) return pm::kHeadPageOffset + how % 32 * 8;
    if (how < 0xe0) return base_.lines[in_.u16() % base_.lines.size()] + how % 8 * 8;
    return how < 0xf0 ? in_.u32() : in_.u64();
  }

  // An intent of one or two blocks, packed as the heap does it or with any head.
  void intent(std::size_t lane) {
    const unsigned how = in_.u8();
    const auto op = static_cast<heap::IntentOp>(1 + how % 5);
    heap::IntentElement e[2];
    for (auto& x : e) {
      x = {{destination()}, {round_down(block(), 16)}, bytes(), in_.u8()};
    }
    std::uint64_t words[7];
    heap::pack_intent(words, op, in_.u8() % 4, e, 1 + how / 8 % 2);
    if (how >= 0xf8) words[0] = in_.u64();
    if (how == 0xf7) words[3] = in_.u64();
    const unsigned place = in_.u8();
    pm::write_log_line(line(lane, pm::kLaneIntentLine + place % pm::kLaneIntentLines), words,
                       1 + in_.u8());
    if ((place & 0x80) == 0 || words[2] > kPoolBytes - 8 || e[0].block.value > kPoolBytes) return;
    // Attaches the block, as the operation would have.
    auto& word = file_.at<std::uint64_t>(round_down(words[2], 8));
    const void* target = file_.data() + e[0].block.value;
    word = heap::is_versioned(op) ? VPtrWord::encode(&word, target, e[0].version)
                                  : PtrWord::encode(&word, target);
  }
  std::uint64_t bytes() {
    const unsigned how = in_.u8();
    if (how < 0x80) return how * 16;
    return how < 0xc0 ? (how - 0x7f) * kFrameBytes : in_.u64();
  }

  void tx_line(std::size_t lane) {
    const LaneId id{static_cast<std::uint32_t>(lane)};
    auto& t = reinterpret_cast<tx::TxLine&>(line(lane, pm::kLaneTxLine));
    committed_[lane] = in_.u8() % 8;
    const std::uint64_t frees_done = in_.u8() % 10;
    t.committed.raw =
        tx::SealedWord::make(committed_[lane], tx::salt_of(id, tx::WordPlace::committed));
    t.frees_done.raw = tx::SealedWord::make(frees_done, tx::salt_of(id, tx::WordPlace::frees_done));
  }

  // The next line of an area, mostly in order, as a transaction writes.
  pm::LogLine& next_line(std::size_t lane, std::size_t& area, std::size_t& i) {
    const unsigned how = in_.u8();
    area = how % tx::kAreas;
    i = how < 0xf0 ? next_[lane][area]++ % pm::kLaneUndoLines : how % pm::kLaneUndoLines;
    return line(lane, pm::kLaneUndoLine + area * pm::kLaneUndoLines + i);
  }

  void undo(std::size_t lane) {
    Undo u;
    u.lane = lane;
    pm::LogLine& l = next_line(lane, u.area, u.line);
    u.sequence = 1 + in_.u8() % 8;
    const unsigned how = in_.u8();
    if (how < 0xc0) {
      u.offset = root_ + offsetof(Root, number) + in_.u16() % (sizeof(Numbers) - 64);
    } else {
      wild_ = true;
      u.offset = how < 0xe0 ? block() : destination();
    }
    u.offset &= (1ull << 48) - 1;
    u.bytes = in_.bytes(1 + how % tx::kEntryBytes);
    std::uint64_t words[7] = {
        tx::EntryHead::make(tx::EntryKind::undo, {u.offset}, u.bytes.size()).raw};
    if (!u.bytes.empty()) std::memcpy(&words[1], u.bytes.data(), u.bytes.size());
    pm::write_log_line(l, words, u.sequence);
    std::erase_if(undo_, [&](const Undo& o) {
      return o.lane == lane && o.area == u.area && o.line == u.line;
    });
    undo_.push_back(std::move(u));
  }

  void entry(std::size_t lane, tx::EntryKind kind) {
    std::size_t area = 0;
    std::size_t i = 0;
    pm::LogLine& l = next_line(lane, area, i);
    const std::uint64_t words[7] = {
        tx::EntryHead::make(kind, {block() & ((1ull << 48) - 1)}, 0).raw};
    pm::write_log_line(l, words, 1 + in_.u8() % 8);
    std::erase_if(undo_,
                  [&](const Undo& o) { return o.lane == lane && o.area == area && o.line == i; });
  }

  // A log frame at one of a few places at the end of the pool, in a chain or across one.
  void log_frame(std::size_t lane) {
    const unsigned how = in_.u8();
    const LaneId id{static_cast<std::uint32_t>(lane)};
    const std::size_t area = how % tx::kAreas;
    const std::uint64_t at = kPoolBytes - (1 + how / 2 % kFrames) * tx::kLogFrameBytes;
    const std::size_t index = how / 16 % kFrames;
    auto& frame = file_.at<tx::LogFrameHeader>(at);
    frame = {.magic = tx::kLogFrameMagic,
             .lane = id.value,
             .area = static_cast<std::uint32_t>(area),
             .index = index,
             .next = {},
             .reserved = {},
             .zero = 0,
             .crc = 0};
    frame.crc = tx::header_crc(frame);
    // Links it: from the transaction line, or from the frame at another of these places.
    if (index == 0) {
      auto& t = reinterpret_cast<tx::TxLine&>(line(lane, pm::kLaneTxLine));
      t.log_frame[area].raw =
          tx::SealedWord::make(at, tx::salt_of(id, tx::WordPlace::log_frame, area));
    } else {
      const std::uint64_t from = kPoolBytes - (1 + in_.u8() % kFrames) * tx::kLogFrameBytes;
      file_.at<tx::LogFrameHeader>(from).next.raw =
          tx::SealedWord::make(at, tx::salt_of(id, tx::WordPlace::next, index * tx::kAreas + area));
    }
    if ((how & 0x80) == 0) return;
    // An entry in it, for a block or for the root object's words.
    plain_ = false;
    auto& l = file_.at<pm::LogLine>(at + (1 + in_.u8() % tx::kLogFrameLines) * kLineBytes);
    const auto kind = static_cast<tx::EntryKind>(1 + in_.u8() % 3);
    const bool undo = kind == tx::EntryKind::undo;
    const std::uint64_t words[7] = {
        tx::EntryHead::make(kind, {undo ? root_ + in_.u8() : block() & ((1ull << 48) - 1)},
                            undo ? 8 : 0)
            .raw};
    pm::write_log_line(l, words, 1 + in_.u8() % 8);
  }

  Input& in_;
  const WorkFile& file_;
  const Base& base_;
  std::uint64_t root_ = 0;
  std::vector<std::uint64_t> blocks_;
  Numbers numbers_{};
  std::vector<Undo> undo_;
  std::uint64_t committed_[kLanes] = {};
  std::size_t next_[kLanes][tx::kAreas] = {};
  bool wild_ = false;
  bool plain_ = true;  // only undo entries can have changed the numbers
};

struct Recovered {
  bool sound = false;
  std::uint64_t records = 0;
  std::uint64_t objects = 0;
};

// Opens and reads the pool. Closes nothing, as a process that dies.
Recovered recover_and_die(const WorkFile& file, bool must_open) {
  Report report;
  auto pool = PoolImpl::open(file.path(), pool_options().pool, kStoreKind, &report);
  FUZZ_REQUIRE(pool || !must_open, "recovered once, but not again: " + report.text());
  if (!pool) {
    FUZZ_REQUIRE(!report.what.empty(), "an error without a report");
    return {};
  }
  PoolImpl& p = **pool;
  StoreParts* const parts = StoreParts::of(&p);
  Recovered r;
  r.sound = p.validate(&report) == Status::ok &&
            (parts == nullptr || parts->collections.validate(&report) == Status::ok);
  FUZZ_REQUIRE(r.sound || !must_open, "sound once, but not again: " + report.text());
  FUZZ_REQUIRE(!must_open || p.rolled_back == 0, "rolled back twice");
  r.objects = p.heap->stats().objects;
  if (parts != nullptr && r.sound) {
    r.records = parts->collections.main()->tree->count().records;
  }
  return r;
}

void work_and_close(const WorkFile& file) {
  Report report;
  auto store = Store::open(file.path(), pool_options(), &report);
  FUZZ_REQUIRE(store, "a sound pool does not open: " + report.text());
  const auto fine = [](Status s, const char* what) {
    FUZZ_REQUIRE(s == Status::ok || s == Status::full, std::string(what) + ": " + status_name(s));
  };
  fine(store->put("new", std::string(300, 'n')), "put");
  fine(store->put(base_key(2), "replaced"), "put");
  if (auto root = store->pool().root<Root>("fuzz")) {
    for (auto& word : (*root)->word) static_cast<void>(store->pool().free_from(word));
    for (auto& word : (*root)->word) static_cast<void>(store->pool().malloc_to(100, word));
    fine(store->pool().run([&](Transaction& tx) {
      TENUTO_TRY(tx.add((*root)->number));
      (*root)->number[0] = 1;
      auto block = tx.alloc(64);
      return block ? tx.free(*block) : block.error();
    }),
         "transaction");
  }
  FUZZ_REQUIRE(store->validate(&report) == Status::ok, "spoiled by work: " + report.text());
  FUZZ_REQUIRE(store->close() == Status::ok, "close");
  auto again = Store::open(file.path(), pool_options(), &report);
  FUZZ_REQUIRE(again, "does not open after a close: " + report.text());
}

}  // namespace
}  // namespace tenuto::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace tenuto::fuzz;
  static WorkFile file(kPoolBytesMax);
  const Base& b = base(BaseName::unclean);
  file.load(b.image);
  Input input(data, bytes);
  Logs logs(input, file, b);
  for (int i = 0; i < kRecordsMax && !input.done(); ++i) logs.write_one();
  const Recovered first = recover_and_die(file, false);
  if (!first.sound || logs.wild()) {
    recover_and_die(file, false);
    return 0;
  }
  Numbers expected;
  if (logs.predict(expected)) {
    FUZZ_REQUIRE(std::equal(expected.begin(), expected.end(), file.at<Root>(logs.root()).number),
                 "the undo log restored other bytes than it held");
  }
  const Recovered second = recover_and_die(file, true);
  FUZZ_REQUIRE(first.records == second.records, "the second recovery found other records");
  FUZZ_REQUIRE(first.objects == second.objects, "the second recovery found other objects");
  work_and_close(file);
  return 0;
}
