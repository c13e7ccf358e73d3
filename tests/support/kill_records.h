// Records of many lengths that a number determines: with inline and with long separators, in slabs
// and in extents.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace tenuto::test {

inline std::string kill_key(int thread, int key) {
  std::mt19937 rng(static_cast<unsigned>(key * 31 + thread));
  std::string k =
      std::to_string(rng() % 1000) + "/" + std::to_string(thread) + "/" + std::to_string(key);
  if (key % 40 == 0) k += std::string(rng() % 300, 'k');
  return k;
}

inline std::string kill_value(int thread, int key, std::uint32_t version) {
  std::mt19937 rng(static_cast<unsigned>(key * 7919 + thread) ^ version * 2654435761u);
  std::size_t bytes = rng() % 200;
  if (rng() % 16 == 0) bytes = rng() % 4000;
  if (rng() % 200 == 0) bytes = 20000 + rng() % 30000;
  std::string v = std::to_string(version) + ":";
  while (v.size() < bytes) v.push_back(static_cast<char>(rng()));
  return v;
}

}  // namespace tenuto::test
