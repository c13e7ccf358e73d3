// The layers pm, frame and heap, connected by hand, for tests below the public Pool. crash() drops
// all volatile state without a close, as a kill does.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "file/lane.h"
#include "file/pool_file.h"
#include "frame/frames.h"
#include "heap/heap.h"

namespace tenuto::test {

// The bytes that the file takes. 0: there is none.
inline std::uint64_t blocks_on_disk(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_blocks) * 512 : 0;
}

// A path in shared memory, of a pool file. It and its journal are unlinked before and afterwards.
class TempPath {
 public:
  explicit TempPath(const std::string& name)
      : path_("/dev/shm/tenuto-test-" + std::to_string(::getpid()) + "-" + name) {
    remove();
  }
  ~TempPath() { remove(); }
  TempPath(const TempPath&) = delete;
  TempPath& operator=(const TempPath&) = delete;
  const std::string& str() const { return path_; }

 private:
  void remove() const {
    ::unlink(path_.c_str());
    ::unlink((path_ + ".journal").c_str());
  }
  std::string path_;
};

struct PoolParts {
  std::unique_ptr<pm::PoolFile> file;
  std::unique_ptr<pm::Lanes> lanes;
  std::unique_ptr<frame::Frames> frames;
  std::unique_ptr<heap::Heap> heap;
  std::uint64_t leaked = 0;
  Report report;

  static PoolOptions small_options() {
    PoolOptions o;
    o.size = 16u << 20;
    o.size_max = 1u << 30;
    o.medium = Medium::cache;
    return o;
  }

  Status create(const std::string& path, const PoolOptions& options = small_options()) {
    auto made = pm::PoolFile::create(path, options, &report);
    if (!made) return made.error();
    file = std::move(*made);
    frame::Frames::format_zone(*file, file->zone(0), pm::kHeadBytes);
    TENUTO_TRY(attach(true, options));
    TENUTO_TRY(heap->finish_recovery(&report));
    leaked = heap->leaked_frames();
    TENUTO_TRY(file->set_state(pm::PoolState::running));
    return file->link_into_place(&report);
  }

  // Does not recover layers above the heap. For those, call begin_open and end_open.
  Status open(const std::string& path, const PoolOptions& options = small_options()) {
    TENUTO_TRY(begin_open(path, options));
    return end_open(options);
  }
  Status begin_open(const std::string& path, const PoolOptions& options = small_options()) {
    auto opened = pm::PoolFile::open(path, options, &report);
    if (!opened) return opened.error();
    file = std::move(*opened);
    TENUTO_TRY(file->begin_life(&report));
    TENUTO_TRY(attach(file->was_clean(), options));
    if (!file->was_clean()) return heap->replay_intents(&report);
    return Status::ok;
  }
  // After a crash, with Consistency::gc: what the first root word leads to is kept.
  Status end_open(const PoolOptions& options = small_options()) {
    if (!file->was_clean() && file->consistency() == Consistency::gc) {
      const void* const at = PtrWord::decode(&root(0), root(0).raw);
      heap::Heap::Reached reached;
      const PoolOffset o = at == nullptr ? PoolOffset{} : file->offset_of(at);
      TENUTO_TRY(
          heap->collect(o, {.root_filter = options.root_filter, .threads = 1}, reached, &report));
    }
    TENUTO_TRY(heap->finish_recovery(&report));
    leaked = heap->leaked_frames();
    file->stay_damaged();
    if (file->poisoned() != Status::ok) return file->health(&report);  // a crash is no damage
    return file->read_only() ? Status::ok : file->set_state(pm::PoolState::running);
  }

  Status close() {
    TENUTO_TRY(heap->close());
    frames->close();
    TENUTO_TRY(file->set_state(pm::PoolState::clean));
    crash();
    return Status::ok;
  }

  void crash() {
    heap.reset();
    frames.reset();
    lanes.reset();
    file.reset();
  }

  // A root word of the head page, as a destination.
  PtrWord& root(std::size_t i) { return reinterpret_cast<PtrWord&>(file->head().roots[i]); }

 private:
  Status attach(bool clean, const PoolOptions& options) {
    auto l = pm::Lanes::open(*file, &report);
    if (!l) return l.error();
    lanes = std::move(*l);
    auto f = frame::Frames::open(*file, clean, &report);
    if (!f) return f.error();
    frames = std::move(*f);
    auto h = heap::Heap::open(*file, *frames, *lanes, clean, 1, options.heap, &report);
    if (!h) return h.error();
    heap = std::move(*h);
    return Status::ok;
  }
};

}  // namespace tenuto::test
