// pmemobj_ctl_get, set and exec. Names that tune libpmemobj's own heap and logs are taken note of,
// and change nothing. Names of what is not offered are refused.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>

#include "tools/pmemobj/error.h"
#include "tools/pmemobj/step.h"

namespace TENUTO_NS::pmemobj {

namespace {

enum class Size : std::uint8_t { int_, long_ };

// A number that is kept and means nothing: of the process, or of each pool.
struct Noted {
  std::string_view name;
  Size size;
  bool per_pool;
  std::int64_t value;  // at first
  std::int64_t least = std::numeric_limits<int>::min();
  std::int64_t most = std::numeric_limits<int>::max();
};
constexpr std::int64_t kBytesMax = PMEMOBJ_MAX_ALLOC_SIZE;
constexpr std::int64_t kPartMin = PMEMOBJ_MIN_PART;  // the least granularity; 0: none
constexpr Noted kNoted[] = {
    {"prefault.at_create", Size::int_, false, 0},
    {"prefault.at_open", Size::int_, false, 0},
    {"sds.at_create", Size::int_, false, 1},
    {"fallocate.at_create", Size::int_, false, 1},
    {"tx.debug.skip_expensive_checks", Size::int_, true, 0},
    {"tx.debug.verify_user_buffers", Size::int_, true, 0},
    {"tx.cache.size", Size::long_, true, 32768, 0, kBytesMax},
    {"tx.cache.threshold", Size::long_, true, 4096, 0, kBytesMax},
    {"tx.post_commit.queue_depth", Size::int_, true, 0, 0},
    {"heap.size.granularity", Size::long_, true, 0, 0, kBytesMax},
    {"heap.narenas.max", Size::int_, true, 1024, 1},
    {"heap.thread.arena_id", Size::int_, true, 1, 1, 1},
    {"heap.arenas_assignment_type", Size::int_, false, POBJ_ARENAS_ASSIGNMENT_THREAD_KEY},
    {"stats.enabled", Size::int_, true, POBJ_STATS_ENABLED_TRANSIENT},
    {"debug.heap.alloc_pattern", Size::int_, true, -1},
};
static_assert(std::size(kNoted) == kNotedCount);
constinit NotedNumbers noted_of_process{};

constexpr unsigned kClassesReserved = 128;  // below are those of libpmemobj itself
constexpr unsigned kClassMax = 254;
constexpr std::uint64_t kSlabMax = 2u << 20;

int unknown(const char* name) { return refuse(EINVAL, "invalid entry point %s", name); }

const Noted* find_noted(const OpenPool* pool, std::string_view name) {
  const auto* const end = std::end(kNoted);
  const auto* const found = std::find_if(std::begin(kNoted), end, [&](const Noted& n) {
    return n.name == name && (!n.per_pool || pool != nullptr);
  });
  return found == end ? nullptr : found;
}

std::atomic<std::int64_t>& number_of(const Noted& n, OpenPool* pool) {
  return (n.per_pool ? pool->noted : noted_of_process)[static_cast<std::size_t>(&n - kNoted)];
}

int put(const Noted& n, OpenPool* pool, void* arg) {
  const std::int64_t value = n.value + number_of(n, pool).load(std::memory_order_relaxed);
  if (n.size == Size::int_) {
    const int small = static_cast<int>(value);
    std::memcpy(arg, &small, sizeof small);
  } else {
    std::memcpy(arg, &value, sizeof value);
  }
  return 0;
}

int take(const Noted& n, OpenPool* pool, const void* arg) {
  std::int64_t value = 0;
  int small = 0;
  if (n.size == Size::int_) {
    std::memcpy(&small, arg, sizeof small);
    value = small;
  } else {
    std::memcpy(&value, arg, sizeof value);
  }
  const bool part = n.name != "heap.size.granularity" || value == 0 || value >= kPartMin;
  if (value < n.least || value > n.most || !part) {
    return refuse(EINVAL, "%s is %lld to %lld, and not %lld", n.name.data(),
                  static_cast<long long>(n.least), static_cast<long long>(n.most),
                  static_cast<long long>(value));
  }
  number_of(n, pool).store(value - n.value, std::memory_order_relaxed);
  return 0;
}

// --- allocation classes --------------------------------------------------------------------------

constexpr std::string_view kClassPrefix = "heap.alloc_class.";
constexpr std::string_view kClassSuffix = ".desc";

// "heap.alloc_class.ID.desc". True: the name has this form. "new" is kNewClass.
constexpr unsigned kNewClass = ~0u;
bool class_id(std::string_view name, unsigned& id) {
  if (!name.starts_with(kClassPrefix) || !name.ends_with(kClassSuffix)) return false;
  if (name.size() < kClassPrefix.size() + kClassSuffix.size()) return false;
  name.remove_prefix(kClassPrefix.size());
  name.remove_suffix(kClassSuffix.size());
  if (name == "new") {
    id = kNewClass;
    return true;
  }
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  return error == std::errc() && end == name.data() + name.size() && id <= kClassMax;
}

int get_class(OpenPool& pool, unsigned id, pobj_alloc_class_desc& desc) {
  const std::lock_guard lock(pool.classes_mu);
  const auto it = pool.classes.find(id);
  if (it == pool.classes.end()) return refuse(ENOENT, "there is no allocation class %u", id);
  desc = it->second;
  return 0;
}

int set_class(OpenPool& pool, unsigned id, pobj_alloc_class_desc& desc) {
  const bool aligned =
      desc.alignment == 0 || ((desc.alignment & (desc.alignment - 1)) == 0 &&
                              desc.alignment <= kSlabMax && desc.unit_size % desc.alignment == 0);
  if (desc.unit_size == 0 || desc.unit_size > PMEMOBJ_MAX_ALLOC_SIZE || !aligned ||
      desc.units_per_block == 0 || desc.header_type >= MAX_POBJ_HEADER_TYPES) {
    return refuse(EINVAL, "the allocation class cannot be");
  }
  const std::lock_guard lock(pool.classes_mu);
  if (id == kNewClass) {
    id = kClassesReserved;
    while (id <= kClassMax && pool.classes.contains(id)) ++id;
  }
  if (id < kClassesReserved || id > kClassMax) {
    return refuse(EINVAL, "allocation classes have the numbers 128 to 254");
  }
  if (pool.classes.contains(id)) return refuse(EEXIST, "allocation class %u is there already", id);
  desc.class_id = id;
  pool.classes[id] = desc;
  return 0;
}

// --- the calls -----------------------------------------------------------------------------------

int get(OpenPool* pool, const char* name, void* arg) {
  const std::string_view n = name;
  if (const Noted* const found = find_noted(pool, n)) return put(*found, pool, arg);
  if (n == "copy_on_write.at_open") {
    std::memset(arg, 0, sizeof(int));
    return 0;
  }
  if (pool == nullptr) return unknown(name);
  if (unsigned id = 0; class_id(n, id) && id != kNewClass) {
    return get_class(*pool, id, *static_cast<pobj_alloc_class_desc*>(arg));
  }
  const auto counted = [&](std::uint64_t value) {
    std::memcpy(arg, &value, sizeof value);
    return 0;
  };
  if (n == "stats.heap.curr_allocated" || n == "stats.heap.run_allocated" ||
      n == "stats.heap.run_active") {
    return counted(pool->heap().stats().allocated_bytes);
  }
  if (n == "heap.narenas.total" || n == "heap.narenas.automatic") {
    const unsigned one = 1;
    std::memcpy(arg, &one, sizeof one);
    return 0;
  }
  return unknown(name);
}

int set(OpenPool* pool, const char* name, void* arg) {
  const std::string_view n = name;
  if (const Noted* const found = find_noted(pool, n)) return take(*found, pool, arg);
  if (n == "copy_on_write.at_open") {
    int wanted = 0;
    std::memcpy(&wanted, arg, sizeof wanted);
    return wanted == 0 ? 0 : refuse(ENOTSUP, "opening a private copy of a pool is not offered");
  }
  if (unsigned id = 0; pool != nullptr && class_id(n, id)) {
    return set_class(*pool, id, *static_cast<pobj_alloc_class_desc*>(arg));
  }
  return unknown(name);
}

int exec(OpenPool* pool, const char* name) {
  const std::string_view n = name;
  if (pool != nullptr && n == "heap.size.extend") {
    return refuse(ENOTSUP, "a pool keeps the size that it was created with");
  }
  if (pool != nullptr && n == "heap.arena.create") {
    return refuse(ENOTSUP, "the heap has no arenas that a program can make");
  }
  return unknown(name);
}

template <class F>
int call(PMEMobjpool* pop, const char* name, const F& f) {
  return without_throwing(-1, [&] {
    OpenPool* const pool = pop == nullptr ? nullptr : pool_of(pop);
    if (pop != nullptr && pool == nullptr) return -1;
    if (name == nullptr) {
      refuse(EINVAL, "the name is null");
      return -1;
    }
    return f(pool) == 0 ? 0 : -1;
  });
}

}  // namespace
}  // namespace TENUTO_NS::pmemobj

using namespace tenuto::pmemobj;

int pmemobj_ctl_get(PMEMobjpool* pop, const char* name, void* arg) {
  return call(pop, name, [&](OpenPool* pool) {
    return arg != nullptr ? get(pool, name, arg) : refuse(EINVAL, "the argument is null");
  });
}

int pmemobj_ctl_set(PMEMobjpool* pop, const char* name, void* arg) {
  return call(pop, name, [&](OpenPool* pool) {
    return arg != nullptr ? set(pool, name, arg) : refuse(EINVAL, "the argument is null");
  });
}

int pmemobj_ctl_exec(PMEMobjpool* pop, const char* name, void*) {
  return call(pop, name, [&](OpenPool* pool) { return exec(pool, name); });
}
