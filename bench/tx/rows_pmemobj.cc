// libpmemobj's rows: ranges by pmemobj_tx_add_range_direct, as the macro TX_ADD_FIELD_DIRECT does;
// POBJ_XADD_NO_SNAPSHOT where old bytes need not be kept; reserve, defer_free and publish for what
// is atomic without a transaction. It has no call for several ranges at once, so the rows that
// differ in that only for tenuto are the same here, but for the order of its stores.
#include <array>
#include <cerrno>

#include "bench/tx/parts_pmemobj.h"
#include "bench/tx/row.h"

namespace bench {
namespace {

// 64 bytes.
struct PmemobjBlock {
  PmemobjBlock(std::uint64_t number, PMEMoid after) : stamp(number), next(after) {}
  std::uint64_t stamp;
  PMEMoid next;
  std::uint64_t rest[5] = {};
};
static_assert(sizeof(PmemobjBlock) == kRowObjectBytes);

struct PmemobjRowArea {
  RowLine lines[2 * kRowRanges];
  PMEMoid head;
  PMEMoid slots[kRowBatchMax];
};
static_assert(sizeof(PmemobjRowArea) <= kThreadAreaBytes);

struct PmemobjPlace {
  const PmemobjPool& p;
  PmemobjRowArea& area;
  std::uint64_t batch;
};
using Place = const PmemobjPlace&;

// The first word of each `stride`-th line counts the transactions.
auto words_count(Place at, unsigned lines, unsigned stride = 1) {
  return [&area = at.area, lines, stride](std::uint64_t done) -> const char* {
    for (unsigned i = 0; i < lines; ++i) {
      if (area.lines[i * stride].word[0] != done) return kWrongWords;
    }
    return nullptr;
  };
}

void count_up(RowLine& line) {
  for (std::uint64_t& word : line.word) ++word;
}

std::unique_ptr<Work> empty_row(Place at) {
  return make_row([at](std::uint64_t) { return at.p.run([] { return true; }); },
                  [](std::uint64_t) -> const char* { return nullptr; });
}

std::unique_ptr<Work> add_8_row(Place at) {
  return make_row(
      [at](std::uint64_t) {
        return at.p.run([&] {
          std::uint64_t& word = at.area.lines[0].word[0];
          if (!at.p.add(word)) return false;
          ++word;
          return true;
        });
      },
      words_count(at, 1));
}

std::unique_ptr<Work> add_64_row(Place at) {
  return make_row(
      [at](std::uint64_t) {
        return at.p.run([&] {
          if (!at.p.add(at.area.lines[0])) return false;
          count_up(at.area.lines[0]);
          return true;
        });
      },
      words_count(at, 1));
}

std::unique_ptr<Work> add_10x8_row(Place at) {
  return make_row(
      [at](std::uint64_t) {
        return at.p.run([&] {
          for (unsigned i = 0; i < kRowRanges; ++i) {
            std::uint64_t& word = at.area.lines[i].word[0];
            if (!at.p.add(word)) return false;
            ++word;
          }
          return true;
        });
      },
      words_count(at, kRowRanges));
}

std::unique_ptr<Work> together_10x8_row(Place at) {
  return make_row(
      [at](std::uint64_t) {
        return at.p.run([&] {
          for (unsigned i = 0; i < kRowRanges; ++i) {
            if (!at.p.add(at.area.lines[i].word[0])) return false;
          }
          for (unsigned i = 0; i < kRowRanges; ++i) ++at.area.lines[i].word[0];
          return true;
        });
      },
      words_count(at, kRowRanges));
}

std::unique_ptr<Work> together_10x64_row(Place at) {
  return make_row(
      [at](std::uint64_t) {
        return at.p.run([&] {
          for (unsigned i = 0; i < kRowRanges; ++i) {
            if (!at.p.add(at.area.lines[2 * i])) return false;
          }
          for (unsigned i = 0; i < kRowRanges; ++i) count_up(at.area.lines[2 * i]);
          return true;
        });
      },
      words_count(at, kRowRanges, 2));
}

std::unique_ptr<Work> overwrite_64_row(Place at) {
  return make_row(
      [at](std::uint64_t) {
        return at.p.run([&] {
          RowLine& line = at.area.lines[0];
          if (at.p.f().tx_xadd_range_direct(&line, sizeof line, POBJ_XADD_NO_SNAPSHOT) != 0) {
            return false;
          }
          count_up(line);
          return true;
        });
      },
      words_count(at, 1));
}

// Objects that only the benchmark knows.
using Loose = std::array<PMEMoid, kRowBatchMax>;

bool take_loose(Place at, Loose& blocks, std::uint64_t i) {
  return at.p.run([&] { return at.p.make<PmemobjBlock>(blocks[i], i, OID_NULL); });
}

bool drop_loose(Place at, Loose& blocks, std::uint64_t i) {
  return at.p.run([&] { return at.p.free(blocks[i]); });
}

std::unique_ptr<Work> alloc_row(Place at) {
  auto blocks = std::make_shared<Loose>();
  return make_row([at, blocks](std::uint64_t i) { return take_loose(at, *blocks, i); },
                  [at, blocks](std::uint64_t) -> const char* {
                    for (std::uint64_t i = 0; i < at.batch; ++i) {
                      if (at.p.at<PmemobjBlock>((*blocks)[i])->stamp != i) return kWrongBlocks;
                      if (!drop_loose(at, *blocks, i)) return kRefused;
                    }
                    return nullptr;
                  });
}

std::unique_ptr<Work> free_row(Place at) {
  auto blocks = std::make_shared<Loose>();
  const auto fill = [at, blocks]() -> const char* {
    for (std::uint64_t i = 0; i < at.batch; ++i) {
      if (!take_loose(at, *blocks, i)) return kRefused;
    }
    return nullptr;
  };
  return make_row([at, blocks](std::uint64_t i) { return drop_loose(at, *blocks, i); },
                  [fill](std::uint64_t) { return fill(); }, fill);
}

bool link_block(Place at, std::uint64_t i) {
  return at.p.run([&] {
    PMEMoid block;
    PMEMoid& head = at.area.head;
    if (!at.p.make<PmemobjBlock>(block, i, head) || !at.p.add(head)) return false;
    head = block;
    return true;
  });
}

bool unlink_block(Place at) {
  return at.p.run([&] {
    PMEMoid& head = at.area.head;
    const PMEMoid first = head;
    if (!at.p.add(head)) return false;
    head = at.p.at<PmemobjBlock>(first)->next;
    return at.p.free(first);
  });
}

std::unique_ptr<Work> link_row(Place at) {
  return make_row([at](std::uint64_t i) { return link_block(at, i); },
                  [at](std::uint64_t) -> const char* {
                    for (std::uint64_t i = at.batch; i > 0; --i) {
                      const auto* first = at.p.at<PmemobjBlock>(at.area.head);
                      if (first == nullptr || first->stamp != i - 1) return kWrongBlocks;
                      if (!unlink_block(at)) return kRefused;
                    }
                    return OID_IS_NULL(at.area.head) ? nullptr : kWrongBlocks;
                  });
}

std::unique_ptr<Work> unlink_row(Place at) {
  const auto fill = [at]() -> const char* {
    for (std::uint64_t i = 0; i < at.batch; ++i) {
      if (!link_block(at, i)) return kRefused;
    }
    return nullptr;
  };
  return make_row(
      [at](std::uint64_t) { return unlink_block(at); },
      [fill, at](std::uint64_t) { return OID_IS_NULL(at.area.head) ? fill() : kWrongBlocks; },
      fill);
}

std::unique_ptr<Work> replace_row(Place at) {
  const auto put = [at](std::uint64_t i, std::uint64_t stamp) {
    return at.p.run([&] {
      PMEMoid& slot = at.area.slots[i];
      const PMEMoid old = slot;
      PMEMoid block;
      if (!at.p.make<PmemobjBlock>(block, stamp, OID_NULL) || !at.p.add(slot)) return false;
      slot = block;
      return OID_IS_NULL(old) || at.p.free(old);
    });
  };
  const auto stamp_of = [at](std::uint64_t i) {
    return at.p.at<PmemobjBlock>(at.area.slots[i])->stamp;
  };
  return make_row([put, stamp_of](std::uint64_t i) { return put(i, stamp_of(i) + 1); },
                  [stamp_of, at](std::uint64_t done) -> const char* {
                    for (std::uint64_t i = 0; i < at.batch; ++i) {
                      if (stamp_of(i) != done / at.batch) return kWrongBlocks;
                    }
                    return nullptr;
                  },
                  [put, at]() -> const char* {
                    for (std::uint64_t i = 0; i < at.batch; ++i) {
                      if (!put(i, 0)) return kRefused;
                    }
                    return nullptr;
                  });
}

std::unique_ptr<Work> nested_row(Place at) {
  return make_row(
      [at](std::uint64_t) {
        const auto count = [&](unsigned i) {
          std::uint64_t& word = at.area.lines[i].word[0];
          if (!at.p.add(word)) return false;
          ++word;
          return true;
        };
        return at.p.run([&] { return count(0) && at.p.run([&] { return count(1); }); });
      },
      words_count(at, 2));
}

std::unique_ptr<Work> abort_row(Place at) {
  return make_row(
      [at](std::uint64_t) {
        return !at.p.run([&] {
          std::uint64_t& word = at.area.lines[0].word[0];
          if (!at.p.add(word)) return false;
          ++word;
          at.p.f().tx_abort(ECANCELED);
          return false;
        });
      },
      [at](std::uint64_t) { return at.area.lines[0].word[0] == 0 ? nullptr : kWrongWords; });
}

bool publish_block(Place at, std::uint64_t i) {
  PMEMobjpool* const pool = at.p.pool();
  std::array<pobj_action, 2> actions;
  const PMEMoid block = at.p.f().reserve(pool, &actions[0], sizeof(PmemobjBlock), 0);
  if (OID_IS_NULL(block)) return false;
  auto* const made = new (at.p.at<PmemobjBlock>(block)) PmemobjBlock(i, OID_NULL);
  at.p.f().flush(pool, made, sizeof *made);
  // The other word of the pointer is the pool's number, which does not change.
  at.p.f().set_value(pool, &actions[1], &at.area.slots[i].off, block.off);
  return at.p.f().publish(pool, actions.data(), actions.size()) == 0;
}

bool withdraw_block(Place at, std::uint64_t i) {
  PMEMobjpool* const pool = at.p.pool();
  std::array<pobj_action, 2> actions;
  at.p.f().defer_free(pool, at.area.slots[i], &actions[0]);
  at.p.f().set_value(pool, &actions[1], &at.area.slots[i].off, 0);
  return at.p.f().publish(pool, actions.data(), actions.size()) == 0;
}

std::unique_ptr<Work> publish_row(Place at) {
  return make_row([at](std::uint64_t i) { return publish_block(at, i); },
                  [at](std::uint64_t) -> const char* {
                    for (std::uint64_t i = 0; i < at.batch; ++i) {
                      const auto* made = at.p.at<PmemobjBlock>(at.area.slots[i]);
                      if (made == nullptr || made->stamp != i) return kWrongBlocks;
                      if (!withdraw_block(at, i)) return kRefused;
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
  return make_row([at](std::uint64_t i) { return withdraw_block(at, i); },
                  [fill, at](std::uint64_t) -> const char* {
                    for (std::uint64_t i = 0; i < at.batch; ++i) {
                      if (at.area.slots[i].off != 0) return kWrongBlocks;
                    }
                    return fill();
                  },
                  fill);
}

constexpr struct {
  std::string_view name;
  std::unique_ptr<Work> (*make)(Place);
} kPmemobjRows[] = {
    {"empty", empty_row},
    {"add-8", add_8_row},
    {"add-64", add_64_row},
    {"add-10x8", add_10x8_row},
    {"fields-10x8", add_10x8_row},
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

std::unique_ptr<Work> make_pmemobj_row(std::string_view name, const PmemobjPool& pool, void* area,
                                       const WorkSize& size) {
  for (const auto& row : kPmemobjRows) {
    if (row.name == name) return row.make({pool, *static_cast<PmemobjRowArea*>(area), size.batch});
  }
  return nullptr;
}

}  // namespace bench
