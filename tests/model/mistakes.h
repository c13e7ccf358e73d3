// Mistakes that a model makes on purpose, to show that its exploration would find them. A model
// asks planted<"name">() where a simpler protocol would be wrong. Each name is registered before
// main(), so that a test can plant every mistake that the source of its model has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace tenuto_model {

template <std::size_t kSize>
struct MistakeName {
  char text[kSize];
  consteval MistakeName(const char (&name)[kSize]) { std::copy_n(name, kSize, text); }
};

template <class Model>
class Mistakes {
 public:
  static std::vector<const char*> mistakes() {
    std::vector<const char*> all = registered();
    std::sort(all.begin(), all.end(), std::less<std::string_view>());
    return all;
  }

 protected:
  explicit Mistakes(const char* plant) : plant_(plant) {}

  template <MistakeName kName>
  bool planted() const {
    static_cast<void>(&kRegistered<kName>);
    return plant_ == kName.text;
  }

 private:
  static std::vector<const char*>& registered() {
    static std::vector<const char*> all;
    return all;
  }
  template <MistakeName kName>
  static inline const std::size_t kRegistered = (registered().push_back(kName.text), 0);

  const char* const plant_;  // one of mistakes(), or null
};

}  // namespace tenuto_model
