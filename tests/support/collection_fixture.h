// A small store, opened when a test first asks for a collection, and validated at the test's end.
#pragma once

#include <optional>
#include <string>

#include "support/kv_fixture.h"
#include "tenuto/collection.h"

namespace tenuto::test {

class CollectionFixture : public KvFixture {
 protected:
  // The store ends here, not in the destructor: its clock and log may be the derived fixture's.
  void TearDown() override {
    if (s_) expect_valid(*s_);
    s_.reset();
  }
  Collection made(const CollectionOptions& options, const std::string& name = "c") {
    if (!s_) s_.emplace(opened());
    Result<Collection> c = s_->collection(name, options, &report_);
    EXPECT_TRUE(c) << report_.text();
    return c ? *c : Collection();
  }
  void reopen() {
    s_.reset();
    s_.emplace(opened());
  }

  std::optional<Store> s_;
};

}  // namespace tenuto::test
