// What a process at rest holds of memory and file, compared with its contents: see the limits in
// store/README.md.
#include <algorithm>

#include "apply.h"
#include "objects.h"
#include "tenuto/units.h"

namespace tenuto::life {
namespace {

constexpr std::uint64_t kSealedBytes = 64u << 10;  // size that seals a list of unlinked memory
constexpr std::uint64_t kLeafBytes = 640, kLeafRecords = 22, kSeparatorBytes = 1024;
constexpr std::uint64_t kLeafEntries = 48;
constexpr std::uint64_t kOwnThreads = 1;  // the store's own thread: its reclaimer
constexpr std::uint64_t kCatalogBytes = 8u << 10;

// The most that a block takes: by its size class, in pages, or in huge frames.
std::uint64_t block_bytes(std::uint64_t bytes) {
  const auto up = [&](std::uint64_t unit) { return (bytes + unit - 1) / unit * unit; };
  return bytes <= (16u << 10)  ? bytes + bytes / 4 + 16
         : bytes <= kHugeBytes ? up(4096)
                               : up(kHugeBytes);
}

std::uint64_t record_bytes(const Records& c, const Held& h) {
  return block_bytes(key_text(c.encoding.numbers(), h.key).size() + 32 + bytes_of_tag(h.tag));
}

// The bytes of blocks that the whole state needs at most.
std::uint64_t blocks_of(const State& state) {
  std::uint64_t bytes = kCatalogBytes + block_bytes(sizeof(RootObject));
  for (const auto& [id, c] : state.collections) {
    for (const auto& [place, h] : c->held) bytes += record_bytes(*c, h);
    bytes += (c->held.size() / kLeafRecords + 3) * (kLeafBytes + kSeparatorBytes);
  }
  bool shelf = false;
  for (const auto& [slot, may_be] : state.objects == nullptr ? Objects{} : *state.objects) {
    std::uint64_t most = 0;
    bool stamped = false;
    for (const Object& o : may_be) {
      most = std::max(most, o.there ? block_bytes(o.bytes) : 0);
      stamped = stamped || o.stamp != 0;
    }
    bytes += most + (stamped ? Shelf::kSlotBytesMax : 0);
    shelf = shelf || stamped;
  }
  if (shelf) bytes += Shelf::kBytesMax;
  return bytes;
}

}  // namespace

std::string Applying::rest() {
  ++state.changes;
  if (!said() || rules.faulted) return {};
  const bool keep = op.a.at(0) != 0;
  std::string why = keep ? expect({Status::ok}) : expect({Status::ok, Status::full});
  if (!why.empty() || !op.ok()) return why;
  const std::uint64_t retired = op.r.at(0), allocated = op.r.at(3);
  if (keep) {
    // The bound: lists that are not sealed yet, for each thread and tree, and what iterators and
    // views show. After a drop they may hold everything that was dropped.
    const std::uint64_t block = block_bytes(state.largest + 1024);
    const std::uint64_t most =
        (op.a.at(3) + kOwnThreads) * (state.most + 1) * (kSealedBytes + block) +
        (kLeafEntries * op.a.at(1) + op.a.at(2)) * block;
    if (retired > most && !state.dropped) {
      return wrong(std::to_string(retired) + " bytes wait to be free, and " + std::to_string(most) +
                   " may at most");
    }
  } else {
    const std::uint64_t most = blocks_of(state);
    if (op.r[1] != 0 || op.r[2] != 0)
      return wrong("no snapshot is left, and old versions are held");
    if (retired != 0) return wrong("nobody rests, and something waits to be free");
    if (allocated > most) {
      return wrong(std::to_string(allocated) + " bytes are in use, and what there is needs " +
                   std::to_string(most) + " at most");
    }
  }
  return {};
}

}  // namespace tenuto::life
