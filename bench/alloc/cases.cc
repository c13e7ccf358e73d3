// The list of benchmarks; see case.h.
#include <algorithm>
#include <array>

#include "bench/alloc/case.h"

namespace bench {
namespace {

constexpr bool kOnRequest = false;
constexpr unsigned kOneThread = 1;
constexpr bool kByObjects = true;
constexpr bool kReopened = true;
constexpr bool kPersistentOnly = true;

constexpr std::array kCases = {
    CaseKind{"threadtest",
             "allocate 100 000 objects of 64 B (all threads together), free them all, again",
             make_threadtest},
    CaseKind{"prodcon", "pairs of threads: one allocates 64 B and hands over, the other frees",
             make_prodcon},
    CaseKind{"shbench",
             "64..1000 B, small ones more often; freed in and against the order, some live on",
             make_shbench},
    CaseKind{"shbench-400", "the same with 64..400 B", make_shbench_400},
    CaseKind{"larson-small",
             "replace random ones of 1000 objects a thread, 64..256 B; threads hand over",
             make_larson_small},
    CaseKind{"larson-large", "the same with 32..512 KiB", make_larson_large},
    CaseKind{"dbmstest", "2000 objects of 32..512 KiB (Poisson), delete 90 %, fill up, again",
             make_dbmstest},
    CaseKind{"dbmstest-cold", "the first filling and deletion in a new heap, each page written",
             make_dbmstest_cold, kOnRequest},
    CaseKind{"fragbench-w1", "100 B, delete 90 %, 130 B", make_fragbench_w1, true, kOneThread},
    CaseKind{"fragbench-w2", "100..150 B, delete none, 200..250 B", make_fragbench_w2, true,
             kOneThread},
    CaseKind{"fragbench-w3", "100..150 B, delete 90 %, 200..250 B", make_fragbench_w3, true,
             kOneThread},
    CaseKind{"fragbench-w4", "100..200 B, delete 50 %, 1000..2000 B", make_fragbench_w4, true,
             kOneThread},
    CaseKind{"recovery-list",
             "build a list of --objects nodes of 64..128 B; open after SIGKILL and close",
             make_recovery_list, true, kOneThread, kByObjects, kReopened, kPersistentOnly},
    CaseKind{"recovery-tree", "the same nodes in a binary tree, built in its breadth",
             make_recovery_tree, kOnRequest, kOneThread, kByObjects, kReopened, kPersistentOnly},
    CaseKind{"growth", "with --objects live ones of 64 B: the cost of replacing, and of opening",
             make_growth, kOnRequest, kOneThread, kByObjects, kReopened},
    CaseKind{"fill-64", "each thread: allocate 20 000 objects of 64 B, free them all, again (PMMS)",
             make_fill<64, 64>, kOnRequest},
    CaseKind{"fill-128", "the same with 128 B", make_fill<128, 128>, kOnRequest},
    CaseKind{"fill-256", "the same with 256 B", make_fill<256, 256>, kOnRequest},
    CaseKind{"fill-512", "the same with 512 B", make_fill<512, 512>, kOnRequest},
    CaseKind{"fill-1024", "the same with 1024 B", make_fill<1024, 1024>, kOnRequest},
    CaseKind{"fill-64-512", "the same with 64..512 B", make_fill<64, 512>, kOnRequest},
    CaseKind{"threads", "200 short-lived threads, each allocates and frees: what stays taken",
             make_threads, kOnRequest},
    CaseKind{"soak", "for --seconds, 16 B..64 KiB at a fixed live size; fails when the heap grows",
             make_soak, kOnRequest},
};

}  // namespace

std::span<const CaseKind> case_kinds() { return kCases; }

const CaseKind* find_case(std::string_view name) {
  const auto at = std::find_if(kCases.begin(), kCases.end(),
                               [&](const CaseKind& kind) { return name == kind.name; });
  return at == kCases.end() ? nullptr : &*at;
}

}  // namespace bench
