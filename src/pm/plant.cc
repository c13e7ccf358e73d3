#include "pm/plant.h"

#if defined(TENUTO_TRACED) || defined(TENUTO_DEBUG_CHECKS)

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "pm/assert.h"

namespace TENUTO_NS {

namespace {

constexpr std::size_t kPlantsMax = 16;  // that can be on at one time

struct Plant {
  char name[88];  // empty: free
  std::uint64_t visits;
};

// Shared memory: visits of forked workers count too.
Plant* plants() {
  static Plant* const table = [] {
    void* p = ::mmap(nullptr, kPlantsMax * sizeof(Plant), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TENUTO_ASSERT(p != MAP_FAILED);
    return static_cast<Plant*>(p);
  }();
  return table;
}

std::mutex plants_mu;  // guards changes of the table
constinit std::atomic<bool> any_planted = false;

void add(const char* name, std::size_t length) {
  const std::lock_guard lock(plants_mu);
  std::size_t i = 0;
  while (i < kPlantsMax && plants()[i].name[0] != 0) ++i;
  TENUTO_ASSERT(i < kPlantsMax && length < sizeof(Plant::name));
  plants()[i].visits = 0;
  std::memcpy(plants()[i].name, name, length);
  any_planted.store(true, std::memory_order_release);
}

const bool kFromEnvironment = [] {
  const char* names = std::getenv("TENUTO_PLANT");
  while (names != nullptr && *names != 0) {
    const std::size_t length = std::strcspn(names, ",");
    if (length != 0) add(names, length);
    names += length;
    if (*names == ',') ++names;
  }
  return true;
}();

Plant* find(const char* name) {
  // They lie side by side: all of them go at once.
  for (std::size_t i = 0; i < kPlantsMax && plants()[i].name[0] != 0; ++i) {
    if (std::strcmp(plants()[i].name, name) == 0) return &plants()[i];
  }
  return nullptr;
}

}  // namespace

namespace pm {

bool planted(const char* name) {
  if (!any_planted.load(std::memory_order_acquire)) return false;
  Plant* p = find(name);
  if (p == nullptr) return false;
  std::atomic_ref(p->visits).fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace pm

void plant(const std::string& name) {
  if (find(name.c_str()) == nullptr) add(name.data(), name.size());
}

void unplant_all() {
  const std::lock_guard lock(plants_mu);
  any_planted.store(false, std::memory_order_release);
  std::memset(plants(), 0, kPlantsMax * sizeof(Plant));
}

std::uint64_t plant_visits(const std::string& name) {
  Plant* p = find(name.c_str());
  return p == nullptr ? 0 : std::atomic_ref(p->visits).load(std::memory_order_relaxed);
}

}  // namespace TENUTO_NS

#endif
