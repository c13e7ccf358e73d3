// The pool file of one fuzz iteration: nameless memory that Pool::open finds under path(), mapped
// once and reused. A reset costs the pages of an image, not the pool's size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tenuto/units.h"

namespace tenuto::fuzz {

// The pages of a pool file that are not all zero.
struct Image {
  std::uint64_t bytes = 0;
  std::vector<std::pair<std::uint64_t, std::array<std::byte, kFrameBytes>>> pages;  // by offset
};

class WorkFile {
 public:
  // `bytes_max`: the size to which a pool in it may grow.
  explicit WorkFile(std::uint64_t bytes_max);
  ~WorkFile();
  WorkFile(const WorkFile&) = delete;
  WorkFile& operator=(const WorkFile&) = delete;

  const std::string& path() const { return path_; }
  // REQUIRES for these: no call has the pool open, or (image()) no thread writes to it.
  void load(const Image& image);
  void cut(std::uint64_t bytes);
  Image image() const;

  std::uint64_t bytes() const;
  // [0, bytes()) may be read and written, also while the pool is open.
  std::byte* data() const { return data_; }
  template <class T>
  T& at(std::uint64_t offset) const {
    return *reinterpret_cast<T*>(data_ + offset);
  }

 private:
  int fd_ = -1;
  std::uint64_t bytes_max_;
  std::byte* data_ = nullptr;
  std::string path_;
};

// Reads a whole file as an image.
Image read_image(const std::string& path);

}  // namespace tenuto::fuzz
