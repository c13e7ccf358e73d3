// Frames for the logs of the layers above. They are metadata: nobody but the library writes there,
// and they are under the protection key from when they are taken to when they are given back.
#include "heap/heap.h"
#include "heap/heap_paths.h"
#include "pm/metadata_key.h"
#include "pm/plant.h"

namespace TENUTO_NS::heap {

Result<PoolOffset> Heap::take_log_frame() {
  const pm::MetadataOpen rights;
  TENUTO_TRY(state_->file.writable());
  FrameSource& frames = state_->frames;
  const auto get = [&] {
    return frames.get(frame::kOrderSlab, state_->numa.on() ? state_->mine().core : 0);
  };
  Result<PoolOffset> frame = get();
  const bool full = !frame && frame.error() == Status::full;
  if (full && !TENUTO_PLANT("heap_log_frame_gives_up")) {
    state_->scavenge(state_->mine());
    frame = get();
  }
  if (!frame) return frame;
  const Status s = state_->file.protect(*frame, kSlabBytes, nullptr);
  if (s == Status::ok) return frame;
  frames.put(*frame, frame::kOrderSlab, 0);
  return s;
}

void Heap::put_log_frame(PoolOffset frame) {
  const pm::MetadataOpen rights;
  if (state_->file.unprotect(frame, kSlabBytes)) state_->frames.put(frame, frame::kOrderSlab, 0);
}

Status Heap::own_log_frame(PoolOffset frame, Report* report) {
  const pm::MetadataOpen rights;
  State& s = state_.as_opened();
  if (frame.value % kSlabBytes != 0 || !s.file.in_range(frame, kSlabBytes)) {
    return fail(Status::corrupt, report, "a log frame lies where none can be",
                s.file.where(frame, "log frame"));
  }
  TENUTO_TRY(s.file.protect(frame, kSlabBytes, report));
  const std::lock_guard lock(s.log_frames_mu);
  s.log_frames.push_back(frame);
  return Status::ok;
}

}  // namespace TENUTO_NS::heap
