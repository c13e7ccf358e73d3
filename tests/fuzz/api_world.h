// A pool and its model, for fuzz_api.cc. Every member makes one call, or a few that belong
// together, and stops the process if the pool and the model differ.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/bases.h"
#include "tenuto/kv.h"

namespace tenuto::fuzz {

// A block that a word of the root object names, filled with one byte.
struct ModelBlock {
  std::uint64_t bytes = 0;  // null word, if 0
  char fill = 0;
};

class ApiWorld {
 public:
  static constexpr std::size_t kSlots = 16;
  static constexpr std::size_t kNumbers = 512;
  using Records = std::map<std::string, std::string>;
  struct Objects {
    ModelBlock block[kSlots];
    std::uint64_t number[kNumbers] = {};
  };
  struct BatchEntry {
    std::string key, value;
    bool erase = false;
  };

  explicit ApiWorld(KeyOrder order);
  ~ApiWorld();

  // A key that the store can have. The two bytes choose among short keys and long, similar ones.
  std::string key(unsigned n, unsigned form) const;

  void put(const std::string& key, const std::string& value, WriteOptions options);
  void erase(const std::string& key);
  void write(const std::vector<BatchEntry>& entries, WriteOptions options);
  void expect_key(const std::string& key);
  void expect_view(const std::string& key);
  // A cursor that stays while others write: its keys must stay in order and readable.
  void hold_iterator(const std::string& key);
  void move_held();

  void malloc_to(std::size_t slot, std::uint64_t bytes);
  void free_from(std::size_t slot);
  void reserve(std::uint64_t bytes);
  void publish(std::size_t slot);
  void cancel();

  // Makes calls that must be refused and change nothing.
  void misuse(unsigned which);

  void expect_counts();
  void expect_valid();
  // Compares everything, byte by byte.
  void expect_all();
  // Closes and opens again. A crash opens a copy of the file as it is now.
  void reopen(bool crash);
  void reopen_at(const Image& crashed, const Objects& objects, const Records& records);

  Store& store() { return *store_; }
  Root& root() { return *root_; }
  Image image() const;
  const Records& records() const { return records_; }
  Objects& objects() { return objects_; }
  // Stops unless the status is ok, or is full and the pool may be full. Returns whether it is ok.
  bool done_or_full(Status s, std::uint64_t bytes, const char* what);
  char next_fill() { return static_cast<char>('a' + ++fills_ % 26); }
  void fill_block(std::size_t slot, void* block, std::uint64_t bytes);
  void expect_blocks();

 private:
  void open();
  void close();
  std::uint64_t used_bytes() const;

  const KeyOrder order_;
  std::size_t now_ = 0;  // index of the pool's file, one of two
  std::optional<Store> store_;
  Root* root_ = nullptr;
  Records records_;
  Objects objects_;
  std::vector<Reserved> reserved_;
  std::optional<Iterator> held_;
  std::string held_key_;
  unsigned fills_ = 0;
};

// A cursor, and its place in the model.
class ApiCursor {
 public:
  ApiCursor(ApiWorld& world, const IteratorOptions& options);
  // 0 first, 1 last, 2 seek, 3 seek_for_prev, 4..5 next, 6..7 prev
  void move(unsigned which, const std::string& key);

 private:
  void expect_same() const;

  std::vector<std::pair<std::string_view, std::string_view>> in_bounds_;
  std::optional<std::size_t> at_;
  Iterator it_;
};

// One transaction on the root object. The world's model gets its changes only at commit().
class ApiTransaction {
 public:
  explicit ApiTransaction(ApiWorld& world);
  void store_numbers(std::size_t at, std::size_t count, unsigned value);
  void alloc(std::size_t slot, std::uint64_t bytes);
  void free(std::size_t slot);
  void nest(unsigned how);
  void refused();  // calls that a transaction may not contain
  // Takes the pool as it is now for what a crash leaves. It is opened once the transaction has
  // ended.
  void remember_crash();
  void commit();
  void abort();
  void crash_if_remembered();

 private:
  bool active() const { return !ended_ && !rolled_back_; }

  ApiWorld& world_;
  ApiWorld::Objects after_;
  ApiWorld::Objects before_;
  std::optional<Image> crashed_;
  ApiWorld::Records records_at_crash_;
  bool ended_ = false;
  bool rolled_back_ = false;  // by an inner transaction, or by a full log
  Transaction tx_;
};

}  // namespace tenuto::fuzz
