// Calls of the public interface, decoded from bytes, beside a plain model: a std::map for the
// store, an array for the root object.
//
// Promises: every call returns what the model predicts (or full, if the pool is full). After a
// clean close, a crash between two calls or a crash inside a transaction, the pool shows exactly
// the model, validates, and has no leak.
//
//   byte 0: key order (bit 0), whether the pool may get full (bit 1, slow)
//   then calls until the end: see Run::step()
#include "fuzz/api_world.h"
#include "fuzz/input.h"

namespace tenuto::fuzz {
namespace {

constexpr int kStepsMax = 200;
// Limits for steps that cost much more than a call.
constexpr int kReopensMax = 4;
constexpr int kFullValidationsMax = 4;
constexpr std::uint64_t kCopiedMax = 14u << 20;  // more than a pool holds
constexpr std::uint64_t kCopiedFewMax = 512u << 10;

class Run {
 public:
  Run(Input& input, ApiWorld& world, bool may_fill)
      : in_(input), w_(world), copied_max_(may_fill ? kCopiedMax : kCopiedFewMax) {}

  void run() {
    for (int i = 0; i < kStepsMax && !in_.done(); ++i) step();
    w_.reopen(false);
  }

 private:
  std::string key() { return w_.key(in_.u8(), in_.u8()); }

  std::string value() {
    const unsigned how = in_.u8();
    std::size_t bytes = how & 0x3f;
    switch (how >> 6) {
      case 1:
        bytes *= 40;
        break;
      case 2:
        bytes = bytes * bytes * 16;
        break;
      case 3:
        bytes = bytes % 16 == 15 ? bytes * 9000 : bytes * 300;
        break;
      default:
        break;
    }
    if (copied_ + bytes > copied_max_) bytes %= 100;
    copied_ += bytes;
    return std::string(bytes, static_cast<char>('A' + ++values_ % 53));
  }

  WriteOptions durability() {
    return {in_.u8() % 2 == 0 ? Durability::sync : Durability::buffered};
  }

  void step() {
    switch (in_.u8() % 24) {
      case 0:
      case 1:
      case 2:
        return put_one();
      case 3:
        return w_.erase(key());
      case 4:
        return w_.expect_key(key());
      case 5:
        return batch();
      case 6:
      case 7:
        return iterate();
      case 8:
        return w_.hold_iterator(key());
      case 9:
        return w_.move_held();
      case 10:
        return reopen(false);
      case 11:
        return reopen(true);
      case 12:
        if (validations_++ < kFullValidationsMax) w_.expect_valid();
        return;
      case 13:
        return w_.expect_counts();
      case 14:
        return w_.malloc_to(slot(), block_bytes());
      case 15:
        return w_.free_from(slot());
      case 16:
        return w_.reserve(block_bytes());
      case 17:
        return w_.publish(slot());
      case 18:
        return w_.cancel();
      case 19:
        return transaction();
      case 20:
        return w_.misuse(in_.u8());
      case 21:
        return fill();
      case 22:
        return erase_many();
      default:
        return w_.expect_view(key());
    }
  }

  std::size_t slot() { return in_.u8() % ApiWorld::kSlots; }
  std::uint64_t block_bytes() {
    const unsigned how = in_.u8();
    return how < 200 ? 1 + how * 8 : 1 + (how - 199) * 6000;
  }

  void put_one() {
    const std::string k = key();
    const std::string v = value();
    w_.put(k, v, durability());
  }

  void batch() {
    std::vector<ApiWorld::BatchEntry> entries(in_.u8() % 12);
    for (auto& e : entries) {
      e.key = key();
      e.erase = in_.u8() % 4 == 0;
      if (!e.erase) e.value = value();
    }
    w_.write(entries, durability());
  }

  // A cursor with bounds that moves while nothing changes.
  void iterate() {
    IteratorOptions options;
    const unsigned bounds = in_.u8();
    if ((bounds & 1) != 0) options.lower = key();
    if ((bounds & 2) != 0) options.upper = key();
    if ((bounds & 4) != 0) options.prefix = key().substr(0, bounds >> 3 & 7);
    ApiCursor cursor(w_, options);
    for (std::size_t moves = in_.u8() % 16; moves > 0; --moves) {
      const unsigned move = in_.u8() % 8;
      cursor.move(move, move >= 2 && move < 4 ? key() : std::string());
    }
  }

  void reopen(bool crash) {
    if (reopens_++ < kReopensMax) w_.reopen(crash);
  }

  void transaction() {
    ApiTransaction tx(w_);
    for (std::size_t calls = in_.u8() % 16; calls > 0; --calls) {
      switch (in_.u8() % 8) {
        case 0:
        case 1: {
          const std::size_t at = in_.u16();
          const std::size_t count = 1 + in_.u8();
          tx.store_numbers(at, count, in_.u8());
          break;
        }
        case 2:
          tx.alloc(slot(), block_bytes());
          break;
        case 3:
          tx.free(slot());
          break;
        case 4:
          w_.put(key(), "inside a transaction", {});
          break;
        case 5:
          tx.nest(in_.u8());
          break;
        case 6:
          tx.refused();
          break;
        default:
          if (reopens_++ < kReopensMax) tx.remember_crash();
      }
    }
    in_.u8() % 3 == 0 ? tx.abort() : tx.commit();
    tx.crash_if_remembered();
  }

  // Puts neighbouring keys that split leaves, or large values that fill the pool.
  void fill() {
    const unsigned how = in_.u8();
    const unsigned first = in_.u8();
    const bool large = how % 16 == 0;
    const std::size_t count = large ? 20 : 1 + how / 2;
    const std::size_t bytes = large ? 600000 : how % 64;
    if (copied_ + count * bytes > copied_max_) return;
    copied_ += count * bytes;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string v(bytes, static_cast<char>('a' + ++values_ % 26));
      w_.put(w_.key(static_cast<unsigned>(first + i) & 0xff, how & 0xc0), v, {});
    }
  }

  void erase_many() {
    const unsigned form = in_.u8() & 0xc0;
    const unsigned first = in_.u8();
    for (unsigned n = in_.u8(), i = 0; i <= n; ++i) {
      w_.erase(w_.key((first + i) & 0xff, form));
    }
  }

  Input& in_;
  ApiWorld& w_;
  const std::uint64_t copied_max_;
  std::uint64_t values_ = 0;
  std::uint64_t copied_ = 0;  // bytes that this input has put into the pool
  int reopens_ = 0;
  int validations_ = 0;
};

}  // namespace
}  // namespace tenuto::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace tenuto;
  fuzz::Input input(data, bytes);
  const unsigned flags = input.u8();
  fuzz::ApiWorld world((flags & 1) != 0 ? KeyOrder::u64 : KeyOrder::bytes);
  fuzz::Run(input, world, (flags & 2) != 0).run();
  return 0;
}
