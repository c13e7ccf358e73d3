// Tenuto's rows: Pool::run with a body, ranges added by Transaction::add, or fields (p<T>) where
// the row is about pointers. publish and withdraw are the heap's atomic calls.
#include <array>
#include <new>
#include <utility>

#include "bench/tx/parts_tenuto.h"
#include "bench/tx/row.h"
#include "tenuto/p.h"
#include "tenuto/persist.h"
#include "tenuto/tx.h"

namespace bench {
namespace {

using tenuto::p;
using tenuto::Pool;
using tenuto::Result;
using tenuto::Status;
using tenuto::Transaction;

// 64 bytes.
struct TenutoBlock {
  TenutoBlock(std::uint64_t number, TenutoBlock* after) : stamp(number), next(after) {}
  std::uint64_t stamp;
  p<TenutoBlock*> next;
  std::uint64_t rest[6] = {};
};
static_assert(sizeof(TenutoBlock) == kRowObjectBytes);

struct alignas(64) FieldLine {
  p<std::uint64_t> word;
};

struct TenutoRowArea {
  RowLine lines[2 * kRowRanges];
  FieldLine fields[kRowRanges];
  p<TenutoBlock*> head;
  p<TenutoBlock*> slots[kRowBatchMax];
  tenuto::Ptr<TenutoBlock> published[kRowBatchMax];
};
static_assert(sizeof(TenutoRowArea) <= kThreadAreaBytes);

struct TenutoRowPlace {
  Pool& pool;
  TenutoRowArea& area;
  std::uint64_t batch;
};
using Place = const TenutoRowPlace&;

template <class Body>
bool ran(Pool& pool, Body&& body) {
  return pool.run(std::forward<Body>(body)) == Status::ok;
}

// The first word of each `stride`-th line counts the transactions.
auto words_count(TenutoRowArea& area, unsigned lines, unsigned stride = 1) {
  return [&area, lines, stride](std::uint64_t done) -> const char* {
    for (unsigned i = 0; i < lines; ++i) {
      if (area.lines[i * stride].word[0] != done) return kWrongWords;
    }
    return nullptr;
  };
}

auto fields_count(TenutoRowArea& area, unsigned fields) {
  return [&area, fields](std::uint64_t done) -> const char* {
    for (unsigned i = 0; i < fields; ++i) {
      if (area.fields[i].word != done) return kWrongWords;
    }
    return nullptr;
  };
}

void count_up(RowLine& line) {
  for (std::uint64_t& word : line.word) ++word;
}

std::unique_ptr<Work> empty_row(Place at) {
  return make_row([&pool = at.pool](
                      std::uint64_t) { return ran(pool, [](Transaction&) { return Status::ok; }); },
                  [](std::uint64_t) -> const char* { return nullptr; });
}

std::unique_ptr<Work> add_8_row(Place at) {
  return make_row(
      [&pool = at.pool, &word = at.area.lines[0].word[0]](std::uint64_t) {
        return ran(pool, [&](Transaction& tx) {
          TENUTO_TRY(tx.add(word));
          ++word;
          return Status::ok;
        });
      },
      words_count(at.area, 1));
}

std::unique_ptr<Work> add_64_row(Place at) {
  return make_row(
      [&pool = at.pool, &line = at.area.lines[0]](std::uint64_t) {
        return ran(pool, [&](Transaction& tx) {
          TENUTO_TRY(tx.add(line));
          count_up(line);
          return Status::ok;
        });
      },
      words_count(at.area, 1));
}

std::unique_ptr<Work> add_10x8_row(Place at) {
  return make_row(
      [&pool = at.pool, &area = at.area](std::uint64_t) {
        return ran(pool, [&](Transaction& tx) {
          for (unsigned i = 0; i < kRowRanges; ++i) {
            TENUTO_TRY(tx.add(area.lines[i].word[0]));
            ++area.lines[i].word[0];
          }
          return Status::ok;
        });
      },
      words_count(at.area, kRowRanges));
}

std::unique_ptr<Work> fields_10x8_row(Place at) {
  return make_row(
      [&pool = at.pool, &area = at.area](std::uint64_t) {
        return ran(pool, [&](Transaction&) {
          for (FieldLine& field : area.fields) ++field.word;
          return Status::ok;
        });
      },
      fields_count(at.area, kRowRanges));
}

std::unique_ptr<Work> together_10x8_row(Place at) {
  return make_row(
      [&pool = at.pool, &area = at.area](std::uint64_t) {
        return ran(pool, [&](Transaction& tx) {
          for (unsigned i = 0; i < kRowRanges; ++i) TENUTO_TRY(tx.add_later(area.lines[i].word[0]));
          TENUTO_TRY(tx.ready());
          for (unsigned i = 0; i < kRowRanges; ++i) ++area.lines[i].word[0];
          return Status::ok;
        });
      },
      words_count(at.area, kRowRanges));
}

std::unique_ptr<Work> together_10x64_row(Place at) {
  return make_row(
      [&pool = at.pool, &area = at.area](std::uint64_t) {
        return ran(pool, [&](Transaction& tx) {
          for (unsigned i = 0; i < kRowRanges; ++i) TENUTO_TRY(tx.add_later(area.lines[2 * i]));
          TENUTO_TRY(tx.ready());
          for (unsigned i = 0; i < kRowRanges; ++i) count_up(area.lines[2 * i]);
          return Status::ok;
        });
      },
      words_count(at.area, kRowRanges, 2));
}

std::unique_ptr<Work> overwrite_64_row(Place at) {
  return make_row(
      [&pool = at.pool, &line = at.area.lines[0]](std::uint64_t) {
        return ran(pool, [&](Transaction& tx) {
          TENUTO_TRY(tx.overwrite(&line, sizeof line));
          count_up(line);
          return Status::ok;
        });
      },
      words_count(at.area, 1));
}

// Blocks that only the benchmark knows.
using Loose = std::array<TenutoBlock*, kRowBatchMax>;

bool take_loose(Pool& pool, Loose& blocks, std::uint64_t i) {
  return ran(pool, [&](Transaction& tx) {
    const Result<TenutoBlock*> block = tx.make<TenutoBlock>(i, nullptr);
    if (!block) return block.error();
    blocks[i] = *block;
    return Status::ok;
  });
}

bool drop_loose(Pool& pool, Loose& blocks, std::uint64_t i) {
  return ran(pool, [&](Transaction& tx) { return tx.destroy(blocks[i]); });
}

std::unique_ptr<Work> alloc_row(Place at) {
  auto blocks = std::make_shared<Loose>();
  return make_row(
      [&pool = at.pool, blocks](std::uint64_t i) { return take_loose(pool, *blocks, i); },
      [&pool = at.pool, blocks, n = at.batch](std::uint64_t) -> const char* {
        for (std::uint64_t i = 0; i < n; ++i) {
          if ((*blocks)[i]->stamp != i) return kWrongBlocks;
          if (!drop_loose(pool, *blocks, i)) return kRefused;
        }
        return nullptr;
      });
}

std::unique_ptr<Work> free_row(Place at) {
  auto blocks = std::make_shared<Loose>();
  const auto fill = [&pool = at.pool, blocks, n = at.batch]() -> const char* {
    for (std::uint64_t i = 0; i < n; ++i) {
      if (!take_loose(pool, *blocks, i)) return kRefused;
    }
    return nullptr;
  };
  return make_row(
      [&pool = at.pool, blocks](std::uint64_t i) { return drop_loose(pool, *blocks, i); },
      [fill](std::uint64_t) { return fill(); }, fill);
}

bool link_block(Pool& pool, p<TenutoBlock*>& head, std::uint64_t i) {
  return ran(pool, [&](Transaction& tx) {
    const Result<TenutoBlock*> block = tx.make<TenutoBlock>(i, head.get());
    if (!block) return block.error();
    head = *block;
    return Status::ok;
  });
}

bool unlink_block(Pool& pool, p<TenutoBlock*>& head) {
  TenutoBlock* const first = head;
  return ran(pool, [&](Transaction& tx) {
    head = first->next.get();
    return tx.destroy(first);
  });
}

std::unique_ptr<Work> link_row(Place at) {
  return make_row(
      [&pool = at.pool, &head = at.area.head](std::uint64_t i) {
        return link_block(pool, head, i);
      },
      [&pool = at.pool, &head = at.area.head, n = at.batch](std::uint64_t) -> const char* {
        for (std::uint64_t i = n; i > 0; --i) {
          if (head.get() == nullptr || head->stamp != i - 1) return kWrongBlocks;
          if (!unlink_block(pool, head)) return kRefused;
        }
        return head.get() == nullptr ? nullptr : kWrongBlocks;
      });
}

std::unique_ptr<Work> unlink_row(Place at) {
  const auto fill = [&pool = at.pool, &head = at.area.head, n = at.batch]() -> const char* {
    for (std::uint64_t i = 0; i < n; ++i) {
      if (!link_block(pool, head, i)) return kRefused;
    }
    return nullptr;
  };
  return make_row(
      [&pool = at.pool, &head = at.area.head](std::uint64_t) { return unlink_block(pool, head); },
      [fill, &head = at.area.head](std::uint64_t) {
        return head.get() == nullptr ? fill() : kWrongBlocks;
      },
      fill);
}

std::unique_ptr<Work> replace_row(Place at) {
  const auto put = [&pool = at.pool, &area = at.area](std::uint64_t i, std::uint64_t stamp) {
    return ran(pool, [&](Transaction& tx) {
      p<TenutoBlock*>& slot = area.slots[i];
      const Result<TenutoBlock*> block = tx.make<TenutoBlock>(stamp, nullptr);
      if (!block) return block.error();
      TenutoBlock* const old = slot;
      slot = *block;
      return old == nullptr ? Status::ok : tx.destroy(old);
    });
  };
  return make_row(
      [put, &area = at.area](std::uint64_t i) { return put(i, area.slots[i]->stamp + 1); },
      [&area = at.area, n = at.batch](std::uint64_t done) -> const char* {
        for (std::uint64_t i = 0; i < n; ++i) {
          if (area.slots[i]->stamp != done / n) return kWrongBlocks;
        }
        return nullptr;
      },
      [put, n = at.batch]() -> const char* {
        for (std::uint64_t i = 0; i < n; ++i) {
          if (!put(i, 0)) return kRefused;
        }
        return nullptr;
      });
}

std::unique_ptr<Work> nested_row(Place at) {
  return make_row(
      [&pool = at.pool, &area = at.area](std::uint64_t) {
        return ran(pool, [&](Transaction&) {
          ++area.fields[0].word;
          return pool.run([&](Transaction&) {
            ++area.fields[1].word;
            return Status::ok;
          });
        });
      },
      fields_count(at.area, 2));
}

std::unique_ptr<Work> abort_row(Place at) {
  return make_row(
      [&pool = at.pool, &word = at.area.lines[0].word[0]](std::uint64_t) {
        return pool.run([&](Transaction& tx) {
          TENUTO_TRY(tx.add(word));
          ++word;
          return Status::conflict;
        }) == Status::conflict;
      },
      [&word = at.area.lines[0].word[0]](std::uint64_t) {
        return word == 0 ? nullptr : kWrongWords;
      });
}

bool publish_block(Place at, std::uint64_t i) {
  const Result<tenuto::Reserved> block = at.pool.reserve(sizeof(TenutoBlock));
  if (!block) return false;
  new (block->data) TenutoBlock(i, nullptr);
  tenuto::flush_bytes(block->data, sizeof(TenutoBlock));
  return at.pool.publish(*block, at.area.published[i]) == Status::ok;
}

std::unique_ptr<Work> publish_row(Place at) {
  return make_row([at](std::uint64_t i) { return publish_block(at, i); },
                  [at](std::uint64_t) -> const char* {
                    for (std::uint64_t i = 0; i < at.batch; ++i) {
                      if (at.area.published[i]->stamp != i) return kWrongBlocks;
                      if (at.pool.free_from(at.area.published[i]) != Status::ok) return kRefused;
                    }
                    return nullptr;
                  });
}

std::unique_ptr<Work> withdraw_row(Place at) {
  const auto fill = [at]() -> const char* {
    for (std::uint64_t i = 0; i < at.batch; ++i) {
      if (!publish_block(at, i)) return kRefused;
    }
    return nullptr;
  };
  return make_row(
      [at](std::uint64_t i) { return at.pool.free_from(at.area.published[i]) == Status::ok; },
      [fill, at](std::uint64_t) -> const char* {
        for (std::uint64_t i = 0; i < at.batch; ++i) {
          if (at.area.published[i]) return kWrongBlocks;
        }
        return fill();
      },
      fill);
}

constexpr struct {
  std::string_view name;
  std::unique_ptr<Work> (*make)(Place);
} kTenutoRows[] = {
    {"empty", empty_row},
    {"add-8", add_8_row},
    {"add-64", add_64_row},
    {"add-10x8", add_10x8_row},
    {"fields-10x8", fields_10x8_row},
    {"together-10x8", together_10x8_row},
    {"together-10x64", together_10x64_row},
    {"overwrite-64", overwrite_64_row},
    {"alloc", alloc_row},
    {"free", free_row},
    {"link", link_row},
    {"unlink", unlink_row},
    {"replace", replace_row},
    {"nested", nested_row},
    {"abort", abort_row},
    {"publish", publish_row},
    {"withdraw", withdraw_row},
};

}  // namespace

std::unique_ptr<Work> make_tenuto_row(std::string_view name, Pool& pool, void* area,
                                      const WorkSize& size) {
  for (const auto& row : kTenutoRows) {
    if (row.name == name) return row.make({pool, *static_cast<TenutoRowArea*>(area), size.batch});
  }
  return nullptr;
}

}  // namespace bench
