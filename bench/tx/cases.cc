// The names; see cases.h.
#include "bench/tx/cases.h"

namespace bench {
namespace {

constexpr TxCase kCases[] = {
    {"empty", "begin and commit"},
    {"add-8", "add 8 bytes, store them"},
    {"add-64", "add a line, store it"},
    {"add-10x8", "8 bytes in each of 10 lines: add, store, ten times"},
    {"fields-10x8", "the same by assignments of fields (p<T>)"},
    {"together-10x8", "the same: add all ten, then store"},
    {"together-10x64", "10 lines that do not touch: add all, then store"},
    {"overwrite-64", "a line whose old bytes need not be kept"},
    {"alloc", "allocate 64 bytes"},
    {"free", "free 64 bytes"},
    {"link", "allocate 64 bytes, put them before a list's head"},
    {"unlink", "take a list's first 64 bytes out and free them"},
    {"replace", "allocate 64 bytes, put them in the place of others, free those"},
    {"nested", "add 8 bytes, and 8 more in an inner transaction"},
    {"abort", "add 8 bytes, store them, roll back"},
    {"publish", "no transaction: reserve 64 bytes, fill and flush them, publish them to a pointer"},
    {"withdraw", "no transaction: free the 64 bytes that a pointer leads to, make it null"},
    {"list-insert", "sorted list: insert at the head", Part::list, Phase::insert},
    {"list-lookup", "sorted list: find one of the first 16", Part::list, Phase::lookup},
    {"list-remove", "sorted list: remove the first", Part::list, Phase::remove},
    {"map-insert", "hash map of 16384 chains: insert", Part::map, Phase::insert},
    {"map-lookup", "hash map: find", Part::map, Phase::lookup},
    {"map-remove", "hash map: remove", Part::map, Phase::remove},
    {"tree-insert", "crit-bit tree: insert a leaf and a fork", Part::tree, Phase::insert},
    {"tree-lookup", "crit-bit tree: find", Part::tree, Phase::lookup},
    {"tree-remove", "crit-bit tree: remove a leaf and its fork", Part::tree, Phase::remove},
    {"queue-insert", "linked queue: append", Part::queue, Phase::insert},
    {"queue-lookup", "linked queue: read the first", Part::queue, Phase::lookup},
    {"queue-remove", "linked queue: remove the first", Part::queue, Phase::remove},
};

}  // namespace

std::span<const TxCase> tx_cases() { return kCases; }

bool is_meant(const TxCase& what, std::string_view name) {
  const std::string_view own = what.name;
  if (name == "all" || name == own) return true;
  if (what.part == Part::row) return name == "rows";
  return name == "structures" || name == own.substr(0, own.find('-'));
}

}  // namespace bench
