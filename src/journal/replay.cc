#include "journal/replay.h"

#include <lz4.h>
#include <tbb/parallel_sort.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "journal/file.h"
#include "pm/os.h"
#include "pm/parallel.h"
#include "pm/plant.h"

namespace TENUTO_NS::pm {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kPieceBytes = 4u << 20;  // read at once
constexpr unsigned kReaders = 4;
constexpr std::uint64_t kWindowBytes = 64u << 20;   // walked, unpacked and applied at once
constexpr std::uint64_t kRawBytesMax = 512u << 20;  // of a window, unpacked; one block may be more
constexpr auto kTellEvery = std::chrono::seconds(1);

struct Block {
  JournalBlock head{};
  const std::byte* payload = nullptr;
  std::uint64_t at = 0;                        // its position
  std::size_t first = 0;                       // of its line images in the window's
  std::unique_ptr<std::byte[]> raw = nullptr;  // unpacked
  bool sound = false;
};

class Replay {
 public:
  Replay(const Ring& ring, JournalPosition& end, const ReplayOptions& options,
         const ApplyImages& apply, ReplayStats& stats, Report* report)
      : ring_(ring),
        end_(end),
        start_(end.at),
        options_(options),
        apply_(apply),
        stats_(stats),
        report_(report) {}

  Status run() {
    const auto begin = Clock::now();
    told_ = begin;
    for (std::uint64_t want = std::min(kWindowBytes, ring_.bytes); !ended_;) {
      TENUTO_TRY(read_window(want));
      blocks_.clear();
      const std::uint64_t needed = walk();
      want = std::max(want, needed);
      TENUTO_TRY(unpack());
      TENUTO_TRY(apply());
      if (impossible_) return impossible_block();
      tell();
    }
    stats_.ring_bytes = end_.at - start_;
    stats_.ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    if (TENUTO_PLANT("journal_damage_taken_for_its_end")) return Status::ok;
    return find_block_behind();
  }

 private:
  // Reads the part of the ring behind what was read before. The ring is read round once.
  Status read_window(std::uint64_t want) {
    from_ = end_.at;
    bytes_ = std::min(want, start_ + ring_.bytes - from_);
    window_.reserve(bytes_);
    return read(from_, window_.data(), bytes_);
  }

  Status read(std::uint64_t position, std::byte* to, std::uint64_t bytes) {
    std::atomic<int> error = 0;
    const auto pieces = static_cast<std::size_t>((bytes + kPieceBytes - 1) / kPieceBytes);
    waiting_each(pieces, options_.threads == 1 ? 1 : kReaders, [&](std::size_t i) {
      const std::uint64_t stop = std::min(bytes, (i + 1) * kPieceBytes);
      for (std::uint64_t at = i * kPieceBytes; at < stop;) {
        const std::uint64_t place = (position + at) % ring_.bytes;
        const std::uint64_t n = std::min(stop - at, ring_.bytes - place);
        if (read_all(ring_.fd, kJournalRingOffset + place, to + at, n) != n) {
          error.store(errno != 0 ? errno : EIO, std::memory_order_relaxed);
          return;
        }
        at += n;
      }
    });
    if (error.load() == 0) return Status::ok;
    if (TENUTO_PLANT("journal_unreadable_taken_for_its_end")) {
      std::memset(to, 0, bytes);
      return Status::ok;
    }
    static_cast<void>(fail_errno(error.load(), "cannot read the journal", ring_.path, report_));
    return Status::io;
  }

  bool is_ours(const JournalBlock& b) const {
    return b.magic == kJournalBlockMagic && b.life == ring_.life && b.crc == crc_of(b, ring_.salt);
  }

  // Collects the blocks of the window by their headers, up to the end of the journal or of the
  // window. Returns how large a window the next block needs; 0: the usual size.
  std::uint64_t walk() {
    JournalPosition at = end_;
    std::uint64_t raw_bytes = 0;
    images_ = 0;
    for (;;) {
      const std::uint64_t inside = at.at - from_;
      if (at.at - start_ >= ring_.bytes) break;
      if (inside >= bytes_) return 0;
      Block b;
      std::memcpy(&b.head, window_.data() + inside, sizeof b.head);
      if (!is_ours(b.head) || b.head.number != at.block || b.head.position != at.at) break;
      const std::uint64_t rest = ring_.bytes - at.at % ring_.bytes;
      b.at = at.at;
      std::uint64_t whole = rest;
      if (b.head.kind != static_cast<std::uint32_t>(JournalBlockKind::skip)) {
        whole = ring_bytes_of(b.head);
        if (!may_be(b.head, whole, rest) || at.at + whole > start_ + ring_.bytes) {
          impossible_ = true;
          break;
        }
        if (inside + whole > bytes_) return blocks_.empty() ? whole : 0;
        if (raw_bytes + b.head.raw_bytes > kRawBytesMax && !blocks_.empty()) return 0;
        b.payload = window_.data() + inside + sizeof b.head;
        b.first = images_;
        images_ += b.head.lines;
        raw_bytes += b.head.raw_bytes;
      } else if (at.at + whole > start_ + ring_.bytes) {
        impossible_ = true;
        break;
      }
      at = {at.at + whole, at.block + 1};
      blocks_.push_back(std::move(b));
      end_ = at;
    }
    ended_ = true;
    return 0;
  }

  // The writer's bounds: a block fits into an empty ring even unpacked.
  bool may_be(const JournalBlock& b, std::uint64_t whole, std::uint64_t rest) const {
    return b.kind == static_cast<std::uint32_t>(JournalBlockKind::lines) && whole <= rest &&
           b.packed_bytes <= b.raw_bytes && b.raw_bytes < kJournalBlockBytesMax &&
           b.raw_bytes <= ring_.bytes && b.lines <= b.raw_bytes / kLineBytes;
  }

  Status impossible_block() const {
    return fail(Status::corrupt, report_,
                "a block of the journal has a right checksum and says what cannot be: it was not "
                "written by this pool",
                ring_.path + ", offset " +
                    std::to_string(kJournalRingOffset + end_.at % ring_.bytes) + " (block " +
                    std::to_string(end_.block) + ")");
  }

  bool unpack(Block& b) {
    if (b.payload == nullptr) return true;
    const bool believed = TENUTO_PLANT("journal_torn_block_believed");
    if (crc32c(b.payload, b.head.packed_bytes, ring_.salt) != b.head.payload_crc && !believed) {
      return false;
    }
    const std::byte* p = b.payload;
    if (b.head.packed_bytes != b.head.raw_bytes) {
      b.raw.reset(new std::byte[b.head.raw_bytes]);  // not zeroed
      const int n = ::LZ4_decompress_safe(
          reinterpret_cast<const char*>(p), reinterpret_cast<char*>(b.raw.get()),
          static_cast<int>(b.head.packed_bytes), static_cast<int>(b.head.raw_bytes));
      if (n != static_cast<int>(b.head.raw_bytes)) return false;
      p = b.raw.get();
    }
    return unpack_lines(p, b.head.raw_bytes, b.head.lines, lines_.data() + b.first);
  }

  // The first block whose payload does not check is the journal's end, whatever is behind it.
  Status unpack() {
    lines_.resize(images_);
    const auto one = [this](std::size_t i) { blocks_[i].sound = unpack(blocks_[i]); };
    TENUTO_TRY(told(parallel_each(blocks_.size(), options_.threads, one)));
    const auto torn =
        std::find_if(blocks_.begin(), blocks_.end(), [](const Block& b) { return !b.sound; });
    if (torn == blocks_.end()) return Status::ok;
    ended_ = true;
    impossible_ = false;  // that block is behind the end
    end_ = {torn->at, torn->head.number};
    lines_.resize(torn->first);
    blocks_.erase(torn, blocks_.end());
    return Status::ok;
  }

  Status told(Status of_threads) const {
    return of_threads == Status::ok ? of_threads
                                    : fail(of_threads, report_, kNoThreadHere, ring_.path);
  }

  Status apply() {
    for (const Block& b : blocks_) stats_.blocks += b.payload != nullptr ? 1 : 0;
    stats_.lines += lines_.size();
    // If two blocks have an image of a line, the later block's is later in lines_.
    order_.resize(lines_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) {
      order_[i] = {lines_[i].line, static_cast<std::uint64_t>(i)};
    }
    const auto less = [](const Order& a, const Order& b) {
      return a.line != b.line ? a.line < b.line : a.place < b.place;
    };
    TENUTO_TRY(told(in_arena(options_.threads, [&](bool parallel) {
      if (parallel) {
        tbb::parallel_sort(order_.begin(), order_.end(), less);
      } else {
        std::sort(order_.begin(), order_.end(), less);
      }
      return Status::ok;
    })));
    last_.clear();
    for (const Order& o : order_) {
      const bool again = !last_.empty() && last_.back().line == o.line;
      if (again && TENUTO_PLANT("journal_replay_keeps_older_images")) continue;
      if (again) last_.pop_back();
      last_.push_back(lines_[o.place]);
    }
    const bool bounded = !TENUTO_PLANT("journal_lines_not_bounded");
    if (!last_.empty() && last_.back().line >= options_.lines_max && bounded) {
      return fail(Status::corrupt, report_,
                  "the journal speaks of a part of the pool that the file does not have: was the "
                  "pool file cut short?",
                  ring_.path, "lines below " + std::to_string(options_.lines_max),
                  std::to_string(last_.back().line));
    }
    return apply_(last_);
  }

  void tell() {
    if (!options_.log || ended_ || Clock::now() - told_ < kTellEvery) return;
    told_ = Clock::now();
    options_.log("replaying the journal: " + std::to_string((end_.at - start_) >> 20) +
                 " of at most " + std::to_string(ring_.bytes >> 20) + " MiB");
  }

  // Blocks are written strictly one after the other. So a whole block behind the end proves that
  // the end is a damaged block, not a torn last one.
  Status find_block_behind() {
    const std::uint64_t stop = start_ + ring_.bytes;
    for (std::uint64_t at = end_.at; at < stop;) {
      if (at >= from_ + bytes_) {  // not in the window yet
        from_ = at;
        bytes_ = std::min(kWindowBytes, stop - at);
        window_.reserve(bytes_);
        TENUTO_TRY(read(from_, window_.data(), bytes_));
      }
      for (; at < from_ + bytes_; at += kJournalUnitBytes) {
        JournalBlock b{};
        std::memcpy(&b, window_.data() + (at - from_), sizeof b);
        const bool behind =
            is_ours(b) && b.number > end_.block && b.position % ring_.bytes == at % ring_.bytes;
        if (!behind) continue;
        return fail(
            Status::corrupt, report_, "a block of the journal is damaged, later ones are whole",
            ring_.path + ", offset " + std::to_string(kJournalRingOffset + end_.at % ring_.bytes) +
                " (block " + std::to_string(end_.block) + ")");
      }
    }
    return Status::ok;
  }

  struct Order {
    std::uint64_t line;
    std::uint64_t place;
  };

  const Ring& ring_;
  JournalPosition& end_;
  const std::uint64_t start_;
  const ReplayOptions& options_;
  const ApplyImages& apply_;
  ReplayStats& stats_;
  Report* report_;
  Clock::time_point told_;
  bool ended_ = false;
  bool impossible_ = false;  // the block at end_ has impossible fields
  DirectBuffer window_;      // positions from_ .. from_ + bytes_
  std::uint64_t from_ = 0;
  std::uint64_t bytes_ = 0;
  std::vector<Block> blocks_;
  std::size_t images_ = 0;
  std::vector<LineImage> lines_;  // of the blocks, in block order
  std::vector<Order> order_;
  std::vector<LineImage> last_;  // the last of each line
};

}  // namespace

Status replay_ring(const Ring& ring, JournalPosition& end, const ReplayOptions& options,
                   const ApplyImages& apply, ReplayStats* stats, Report* report) {
  ReplayStats local;
  return Replay(ring, end, options, apply, stats != nullptr ? *stats : local, report).run();
}

}  // namespace TENUTO_NS::pm
