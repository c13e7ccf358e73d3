// Where the shadow leaves of a pool come from.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "store/tree/shadow_leaf.h"

namespace TENUTO_NS::store {

// The shadow leaves of a pool. They come in rows, so that neighbours are next to each other, in
// huge pages if the system has them. Rows are freed with the pool. Small trees share a row.
class ShadowLeaves {
 public:
  ShadowLeaves() = default;
  ~ShadowLeaves();
  ShadowLeaves(const ShadowLeaves&) = delete;
  ShadowLeaves& operator=(const ShadowLeaves&) = delete;

  // `count` of them side by side, for rebuild.
  ShadowLeaf* take_row(std::size_t count);
  ShadowLeaf* take();
  void put(ShadowLeaf* shadow);

 private:
  struct Row {
    void* memory;
    std::size_t bytes;
  };
  ShadowLeaf* make_row(std::size_t count);

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::vector<Row> rows_;
  std::vector<ShadowLeaf*> idle_;
  std::size_t shadows_ = 0;      // in all rows: idle_ has room for them
  ShadowLeaf* fresh_ = nullptr;  // of the last row, never handed out
  std::size_t fresh_count_ = 0;
};

// A shadow leaf that no index shows yet. The destructor gives it back unless linked() was called.
class UnlinkedShadow {
 public:
  explicit UnlinkedShadow(ShadowLeaves& shadows) : shadows_(shadows), shadow_(shadows.take()) {}
  ~UnlinkedShadow() {
    if (shadow_ != nullptr) shadows_.put(shadow_);
  }
  UnlinkedShadow(const UnlinkedShadow&) = delete;
  UnlinkedShadow& operator=(const UnlinkedShadow&) = delete;
  ShadowLeaf* get() const { return shadow_; }
  ShadowLeaf* linked() { return std::exchange(shadow_, nullptr); }

 private:
  ShadowLeaves& shadows_;
  ShadowLeaf* shadow_;
};

}  // namespace TENUTO_NS::store
