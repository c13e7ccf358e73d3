// Allocations that fail, or end the process, on request: operator new of this program.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <unistd.h>

#include "world.h"

namespace tenuto::life {
namespace {

thread_local int left = 0;  // allocations until the one that fails; 0: none does
thread_local bool failed = false;
std::atomic<std::uint64_t> kill_in = 0;

bool fails() {
  if (kill_in.load(std::memory_order_relaxed) != 0 && kill_in.fetch_sub(1) == 1) {
    ::kill(::getpid(), SIGKILL);
  }
  if (left == 0 || --left != 0) return false;
  failed = true;
  return true;
}

void* allocate(std::size_t bytes, std::size_t align) {
  if (fails()) return nullptr;
  if (align <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(align, (bytes + align - 1) / align * align);
}
void* must_allocate(std::size_t bytes, std::size_t align) {
  void* const p = allocate(bytes, align);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

void arm_allocation(int n) {
  left = n;
  failed = false;
}
bool disarm_allocation() {
  left = 0;
  return failed;
}
void kill_at_allocation(std::uint64_t n) { kill_in.store(n); }

}  // namespace tenuto::life

using tenuto::life::allocate;
using tenuto::life::must_allocate;

void* operator new(std::size_t bytes) { return must_allocate(bytes, 1); }
void* operator new[](std::size_t bytes) { return must_allocate(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t a) {
  return must_allocate(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return must_allocate(bytes, static_cast<std::size_t>(a));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 1); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 1);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
