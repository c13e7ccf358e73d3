// A pool of the drop-in for a test.
#pragma once

#include <gtest/gtest.h>
#include <libpmemobj.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/pool_parts.h"

namespace tenuto::test {

class PmemobjTest : public testing::Test {
 protected:
  static constexpr const char* kLayout = "test";

  void SetUp() override {
    pop_ = pmemobj_create(path(), kLayout, PMEMOBJ_MIN_POOL, 0600);
    ASSERT_NE(pop_, nullptr) << pmemobj_errormsg();
  }
  void TearDown() override {
    if (pop_ == nullptr) return;
    pmemobj_close(pop_);
    EXPECT_EQ(pmemobj_check(path(), kLayout), 1) << pmemobj_errormsg();
  }
  void reopen() {
    pmemobj_close(pop_);
    pop_ = pmemobj_open(path(), kLayout);
    ASSERT_NE(pop_, nullptr) << pmemobj_errormsg();
  }
  const char* path() const { return path_.c_str(); }
  template <class T>
  T& root() {
    const PMEMoid oid = pmemobj_root(pop_, sizeof(T));
    EXPECT_FALSE(OID_IS_NULL(oid)) << pmemobj_errormsg();
    return *static_cast<T*>(pmemobj_direct(oid));
  }
  // All objects that a walk shows.
  std::vector<PMEMoid> walk() const {
    std::vector<PMEMoid> all;
    for (PMEMoid o = pmemobj_first(pop_); !OID_IS_NULL(o); o = pmemobj_next(o)) all.push_back(o);
    return all;
  }

  const TempPath temp_{"pmemobj"};
  const std::string path_ = temp_.str();
  PMEMobjpool* pop_ = nullptr;
};

// A transaction as a C++ program makes it, without a jump buffer: body() -> bool.
template <class Body>
int in_tx(PMEMobjpool* pop, Body&& body) {
  if (pmemobj_tx_begin(pop, nullptr, TX_PARAM_NONE) == 0 && body() &&
      pmemobj_tx_stage() == TX_STAGE_WORK) {
    pmemobj_tx_commit();
  }
  if (pmemobj_tx_stage() == TX_STAGE_WORK) pmemobj_tx_abort(ECANCELED);
  return pmemobj_tx_end();
}

}  // namespace tenuto::test
