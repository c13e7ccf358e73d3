#include "journal/direct_buffer.h"

#include <cstdlib>

#include "journal/format.h"
#include "pm/no_memory.h"
#include "tenuto/units.h"

namespace TENUTO_NS::pm {

void DirectBuffer::Free::operator()(std::byte* p) const { std::free(p); }

void DirectBuffer::reserve(std::size_t bytes) {
  bytes = round_up(bytes, kJournalUnitBytes);
  if (bytes <= bytes_) return;
  auto* const more = static_cast<std::byte*>(std::aligned_alloc(kJournalUnitBytes, bytes));
  if (more == nullptr) throw_bad_alloc();  // what there was stays
  data_.reset(more);
  bytes_ = bytes;
}

}  // namespace TENUTO_NS::pm
