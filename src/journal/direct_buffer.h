#pragma once

#include <cstddef>
#include <memory>

#include "tenuto/abi.h"

namespace TENUTO_NS::pm {

// A buffer for reads and writes of a device, aligned for O_DIRECT.
class DirectBuffer {
 public:
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  // Makes it at least `bytes` large. Its contents are lost when it grows.
  void reserve(std::size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace TENUTO_NS::pm
