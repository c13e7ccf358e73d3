// A row: one transaction, again and again. The engine gives the transaction and the check.
#pragma once

#include <memory>
#include <utility>

#include "bench/tx/engine.h"

namespace bench {

inline const char* nothing_to_prepare() { return nullptr; }

// op(i): the i-th transaction of a batch; false: it failed. settle(done): the check after a batch,
// where `done` transactions have been run in all.
template <class Op, class Settle, class Prepare>
class Row final : public Work {
 public:
  Row(Op op, Settle check, Prepare before)
      : op_(std::move(op)), settle_(std::move(check)), prepare_(std::move(before)) {}

  const char* prepare() override { return prepare_(); }
  bool run(std::uint64_t first, std::uint64_t n) override {
    for (std::uint64_t i = first; i < first + n; ++i) {
      if (!op_(i)) return false;
    }
    done_ += n;
    return true;
  }
  const char* settle() override { return settle_(done_); }

 private:
  Op op_;
  Settle settle_;
  Prepare prepare_;
  std::uint64_t done_ = 0;
};

template <class Op, class Settle, class Prepare = const char* (*)()>
std::unique_ptr<Work> make_row(Op op, Settle settle, Prepare prepare = nothing_to_prepare) {
  return std::make_unique<Row<Op, Settle, Prepare>>(std::move(op), std::move(settle),
                                                    std::move(prepare));
}

// The engines' rows store and check the same.
inline constexpr unsigned kRowRanges = 10;
inline constexpr const char* kWrongWords = "the words are not what was stored";
inline constexpr const char* kWrongBlocks = "a block is not what was stored";
inline constexpr const char* kRefused = "a transaction of the preparation was refused";

struct alignas(64) RowLine {
  std::uint64_t word[8];
};

}  // namespace bench
