// How a guard of the heap turns the pool read-only (guard.h).
#pragma once

#include "file/pool_file.h"
#include "pm/no_memory.h"

namespace TENUTO_NS::heap {

// With the report that `say` fills. Without memory it says only `what`, and where. Returns corrupt.
template <class Say>
Status turn_read_only(pm::PoolFile& file, PoolOffset at, const char* what, const Say& say) {
  const bool told = pm::had_memory([&] {
    Report report;
    static_cast<void>(say(&report));
    report.what +=
        "; it was restored, and the pool is read-only: mend the program, then open the pool anew";
    file.poison(Status::corrupt, report);
  });
  if (!told) static_cast<void>(pm::had_memory([&] { static_cast<void>(file.damaged(at, what)); }));
  return Status::corrupt;
}

}  // namespace TENUTO_NS::heap
