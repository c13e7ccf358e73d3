#include "support/failing_memory.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace tenuto::test {
namespace {

thread_local long left = 0;  // allocations up to the one that fails; 0: none fails
thread_local bool lasting = false;
thread_local bool failed = false;
std::atomic<long> left_anywhere = 0;
std::atomic<bool> failed_anywhere = false;
std::atomic<std::uint64_t> kill_in = 0;

bool fails() {
  if (kill_in.load(std::memory_order_relaxed) != 0 && kill_in.fetch_sub(1) == 1) {
    ::kill(::getpid(), SIGKILL);
  }
  // The count may go below 0, which has no effect.
  if (left_anywhere.load(std::memory_order_relaxed) > 0 && left_anywhere.fetch_sub(1) == 1) {
    failed_anywhere.store(true);
    return true;
  }
  if (left == 0 || --left != 0) return false;
  failed = true;
  if (lasting) left = 1;
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

void fail_allocation(long n) {
  left = n;
  lasting = failed = false;
}
void fail_allocations_from(long n) {
  fail_allocation(n);
  lasting = true;
}
bool failed_allocation() {
  left = 0;
  return failed;
}
long allocations_left() { return left; }
void fail_allocation_anywhere(long n) {
  failed_anywhere.store(false);
  left_anywhere.store(n);
}
bool failed_allocation_anywhere() {
  left_anywhere.store(0);
  return failed_anywhere.load();
}
void kill_at_allocation(std::uint64_t n) { kill_in.store(n); }

}  // namespace tenuto::test

using tenuto::test::allocate;
using tenuto::test::must_allocate;

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
void* operator new(std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
