// The figures of a pool: those of its layers in one struct.
#include "journal/journal.h"
#include "pm/media.h"
#include "pm/os.h"
#include "store/pool/pool_impl.h"
#include "tenuto/pool.h"

namespace TENUTO_NS {

namespace {
std::uint64_t used_bytes_of(const frame::FrameStats& s) {
  return (s.frames - s.frames_free) * kFrameBytes;
}

void add_journal(const pm::JournalStats& j, PoolStats& s) {
  s.journal_bytes = j.ring_bytes;
  s.journal_used_bytes = j.used_bytes;
  s.journal_commits = j.commits;
  s.journal_lines = j.lines;
  s.journal_payload_bytes = j.payload_bytes;
  s.journal_written_bytes = j.written_bytes;
  s.journal_device_flushes = j.device_flushes;
  s.journal_checkpoints = j.checkpoints;
  s.journal_checkpoint_bytes = j.checkpoint_bytes;
  s.journal_recovery_ms = j.recovery_ms;
  s.journal_replayed_bytes = j.replayed.ring_bytes;
  s.journal_replayed_lines = j.replayed.lines;
  s.journal_replay_ms = j.replayed.ms;
}
}  // namespace

std::uint64_t Pool::used_bytes() const {
  if (impl_ == nullptr || impl_->usable() != Status::ok) return 0;
  return used_bytes_of(impl_->frames->stats());
}

PoolStats Pool::stats() const {
  PoolStats s;
  if (impl_ == nullptr || impl_->usable() != Status::ok) return s;
  const heap::HeapStats heap = impl_->heap->stats();  // first: it may free what an open left
  const frame::FrameStats frames = impl_->frames->stats();
  const pm::ModelCounts counts = pm::model_counts();
  s.file_bytes = impl_->file->bytes();
  s.used_bytes = used_bytes_of(frames);
  s.allocated_bytes = heap.allocated_bytes;
  s.cached_bytes = heap.cached_bytes;
  s.objects = heap.objects;
  s.slabs = heap.slabs;
  s.morphed_slabs = heap.morphed_slabs;
  s.slabs_by_tenth = heap.slabs_by_tenth;
  s.numa = impl_->heap->numa_stats();
  s.extents = heap.extents;
  s.disk_bytes = impl_->file->bytes_on_disk();
  const pm::MappedBytes mapped = impl_->file->mapped();
  s.large_bytes = mapped.large;
  s.protected_bytes = impl_->file->protected_bytes();
  s.resident_bytes = mapped.in_memory;
  s.dirty_bytes = mapped.dirty;
  s.private_bytes = mapped.own;
  s.reclaimed_bytes = heap.reclaimed_bytes;
  s.retained_bytes = heap.retained_bytes;
  s.book_bytes = heap.book_bytes;
  s.book_list_bytes = heap.book_list_bytes;
  s.book_live_entries = heap.book_live_entries;
  s.book_fast_gcs = heap.book_fast_gcs;
  s.book_slow_gcs = heap.book_slow_gcs;
  s.wear_frames = heap.wear_frames;
  s.wear_lines = heap.wear_lines;
  s.wear_max = heap.wear_max;
  s.wear_bits_lines = heap.wear_bits_lines;
  s.wear_bits_max = heap.wear_bits_max;
  s.wear_rested = heap.wear_rested;
  s.wear_forced = heap.wear_forced;
  s.wear_tables = heap.wear_tables;
  s.zones = frames.zones;
  s.lanes = impl_->lanes->count();
  s.lines_flushed = counts.lines;
  s.fences = counts.fences;
  s.reflushes = counts.reflushes;
  s.writes_sequential = counts.writes_sequential;
  s.writes_random = counts.writes_random;
  if (const pm::Journal* journal = impl_->file->journal()) add_journal(journal->stats(), s);
  return s;
}

}  // namespace TENUTO_NS
