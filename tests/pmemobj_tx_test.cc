// Transactions of the drop-in for libpmemobj: stages, nesting, errors, and what they hold.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/pmemobj_parts.h"

namespace tenuto::test {
namespace {

struct Root {
  PMEMoid oid[8];
  std::uint64_t word[64];
  PMEMmutex mutex;
  PMEMrwlock rwlock;
};

class PmemobjTx : public PmemobjTest {
 protected:
  void SetUp() override {
    PmemobjTest::SetUp();
    r_ = &root<Root>();
  }
  std::string stages_;
  Root* r_ = nullptr;
};

TEST_F(PmemobjTx, stages_come_in_their_order) {
  volatile int error = 0;
  std::string& s = stages_;
  TX_BEGIN(pop_) {
    s += "work ";
    TX_ADD_DIRECT(&r_->word[0]);
    r_->word[0] = 1;
  }
  TX_ONABORT { s += "onabort "; }
  TX_ONCOMMIT { s += "oncommit "; }
  TX_FINALLY { s += "finally "; }
  TX_END
  EXPECT_EQ(s, "work oncommit finally ");
  EXPECT_EQ(pmemobj_tx_stage(), TX_STAGE_NONE);
  s.clear();
  TX_BEGIN(pop_) {
    s += "work ";
    TX_SET_DIRECT(r_, word[0], 2);
    pmemobj_tx_abort(EDOM);
    s += "never ";
  }
  TX_ONABORT {
    s += "onabort ";
    error = errno;
    EXPECT_EQ(r_->word[0], 1u);  // rolled back already
  }
  TX_ONCOMMIT { s += "oncommit "; }
  TX_FINALLY { s += "finally "; }
  TX_END
  EXPECT_EQ(s, "work onabort finally ");
  EXPECT_EQ(error, EDOM);
  EXPECT_EQ(pmemobj_tx_errno(), EDOM);
  EXPECT_EQ(errno, EDOM);
}

TEST_F(PmemobjTx, an_inner_abort_travels_outward) {
  std::string& s = stages_;
  TX_BEGIN(pop_) {
    TX_SET_DIRECT(r_, word[0], 5);
    TX_BEGIN(pop_) {
      TX_SET_DIRECT(r_, word[1], 6);
      TX_BEGIN(pop_) { TX_SET_DIRECT(r_, word[2], 7); }
      TX_ONCOMMIT { s += "third "; }
      TX_END
      pmemobj_tx_abort(ERANGE);
    }
    TX_ONABORT {
      s += "second ";
      EXPECT_EQ(r_->word[0], 5u);  // the outermost one rolls back
    }
    TX_FINALLY { s += "finally "; }
    TX_END
    s += "never ";
  }
  TX_ONABORT { s += "first "; }
  TX_ONCOMMIT { s += "never "; }
  TX_END
  EXPECT_EQ(s, "third second finally first ");
  EXPECT_EQ(errno, ERANGE);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(r_->word[i], 0u);
}

TEST_F(PmemobjTx, without_a_jump_buffer_calls_return) {
  std::uint64_t outside = 0;
  ASSERT_EQ(pmemobj_tx_begin(pop_, nullptr, TX_PARAM_NONE), 0);
  EXPECT_EQ(pmemobj_tx_add_range_direct(&outside, 8), EINVAL);
  EXPECT_EQ(pmemobj_tx_stage(), TX_STAGE_ONABORT);
  EXPECT_EQ(pmemobj_tx_end(), EINVAL);
  // A zero error is ECANCELED.
  ASSERT_EQ(pmemobj_tx_begin(pop_, nullptr, TX_PARAM_NONE), 0);
  pmemobj_tx_abort(0);
  EXPECT_EQ(pmemobj_tx_end(), ECANCELED);
  // As the C++ layer does it: the exception is thrown by the caller.
  EXPECT_THROW(
      {
        ASSERT_EQ(pmemobj_tx_begin(pop_, nullptr, TX_PARAM_NONE), 0);
        try {
          throw std::runtime_error("of the body");
        } catch (...) {
          if (pmemobj_tx_stage() == TX_STAGE_WORK) pmemobj_tx_abort(ECANCELED);
          static_cast<void>(pmemobj_tx_end());
          throw;
        }
      },
      std::runtime_error);
  EXPECT_EQ(pmemobj_tx_stage(), TX_STAGE_NONE);
}

TEST_F(PmemobjTx, failures_abort_or_are_told) {
  const PMEMoid wrong{1, 64};
  const auto fails = [&](int error, auto&& call) {
    EXPECT_EQ(in_tx(pop_, [&] { return call(0), true; }), error);
    EXPECT_EQ(in_tx(pop_,
                    [&] {
                      r_->word[9] += 0;
                      EXPECT_EQ(call(POBJ_FLAG_TX_NO_ABORT), error);
                      return pmemobj_tx_stage() == TX_STAGE_WORK;
                    }),
              0);
  };
  fails(EINVAL, [&](std::uint64_t f) { return pmemobj_tx_xadd_range(wrong, 0, 8, f); });
  fails(EINVAL, [&](std::uint64_t f) { return pmemobj_tx_xadd_range_direct(&wrong, 8, f); });
  fails(EINVAL, [&](std::uint64_t f) { return pmemobj_tx_xfree(wrong, f); });
  fails(EINVAL, [&](std::uint64_t f) {
    return pmemobj_tx_xfree({pmemobj_oid(r_).pool_uuid_lo, pmemobj_oid(r_).off + 16}, f);
  });
  fails(ENOMEM, [&](std::uint64_t f) {
    return OID_IS_NULL(pmemobj_tx_xalloc(100 << 20, 1, f)) ? errno : 0;
  });
  fails(EINVAL,
        [&](std::uint64_t f) { return OID_IS_NULL(pmemobj_tx_xalloc(0, 1, f)) ? errno : 0; });
  fails(EINVAL, [&](std::uint64_t f) {
    return OID_IS_NULL(pmemobj_tx_xstrdup(nullptr, 1, f)) ? errno : 0;
  });
  fails(EINVAL, [&](std::uint64_t f) { return pmemobj_tx_xlock(TX_PARAM_NONE, &r_->mutex, f); });
  // The same for all calls of a transaction, and of those inside it.
  EXPECT_EQ(in_tx(pop_,
                  [&] {
                    pmemobj_tx_set_failure_behavior(POBJ_TX_FAILURE_RETURN);
                    EXPECT_EQ(pmemobj_tx_free(wrong), EINVAL);
                    EXPECT_EQ(in_tx(pop_,
                                    [&] {
                                      EXPECT_EQ(pmemobj_tx_get_failure_behavior(),
                                                POBJ_TX_FAILURE_RETURN);
                                      EXPECT_TRUE(OID_IS_NULL(pmemobj_tx_alloc(0, 1)));
                                      return true;
                                    }),
                              0);
                    return true;
                  }),
            0);
  EXPECT_EQ(in_tx(pop_,
                  [&] {
                    EXPECT_EQ(pmemobj_tx_get_failure_behavior(), POBJ_TX_FAILURE_ABORT);
                    return true;
                  }),
            0);
}

TEST_F(PmemobjTx, ranges_overlap_without_limit_and_come_back) {
  PMEMoid big;
  constexpr std::size_t kWords = 200'000;
  ASSERT_EQ(pmemobj_zalloc(pop_, &big, kWords * 8, 1), 0);
  auto* const word = static_cast<std::uint64_t*>(pmemobj_direct(big));
  EXPECT_EQ(in_tx(pop_,
                  [&] {
                    for (std::size_t i = 0; i + 8 < kWords; i += 40) {
                      if (pmemobj_tx_add_range(big, i * 8, 64) != 0) return false;
                      if (pmemobj_tx_add_range_direct(&word[i + 3], 16) != 0) return false;
                      if (pmemobj_tx_xadd_range_direct(&word[i + 6], 32, POBJ_XADD_NO_FLUSH) != 0)
                        return false;
                      for (std::size_t k = i; k < i + 8; ++k) word[k] = k + 1;
                    }
                    return false;
                  }),
            ECANCELED);
  EXPECT_TRUE(std::all_of(word, word + kWords, [](std::uint64_t w) { return w == 0; }));
  EXPECT_EQ(in_tx(pop_, [&] { return pmemobj_tx_add_range(big, 0, kWords * 8) == 0; }), 0)
      << pmemobj_errormsg();
}

TEST_F(PmemobjTx, objects_live_and_die_with_the_transaction) {
  EXPECT_EQ(in_tx(pop_,
                  [&] {
                    pmemobj_tx_add_range_direct(r_->oid, sizeof r_->oid);
                    r_->oid[0] = pmemobj_tx_alloc(100, 1);
                    r_->oid[1] = pmemobj_tx_zalloc(1000, 2);
                    r_->oid[2] = pmemobj_tx_strdup("three", 3);
                    r_->oid[3] = pmemobj_tx_wcsdup(L"four", 4);
                    const PMEMoid gone = pmemobj_tx_alloc(100, 5);
                    EXPECT_EQ(pmemobj_type_num(gone), 5u);
                    EXPECT_GE(pmemobj_alloc_usable_size(gone), 100u);
                    EXPECT_TRUE(walk().empty());  // not yet
                    return pmemobj_tx_free(gone) == 0 && pmemobj_tx_free(OID_NULL) == 0;
                  }),
            0);
  EXPECT_EQ(walk().size(), 4u);
  EXPECT_STREQ(static_cast<char*>(pmemobj_direct(r_->oid[2])), "three");
  const PMEMoid was = r_->oid[1];
  const auto change = [&] {
    pmemobj_tx_add_range_direct(r_->oid, sizeof r_->oid);
    r_->oid[1] = pmemobj_tx_zrealloc(r_->oid[1], 5000, 2);
    const auto* const p = static_cast<const char*>(pmemobj_direct(r_->oid[1]));
    EXPECT_TRUE(std::all_of(p, p + 5000, [](char c) { return c == 0; }));
    r_->oid[2] = pmemobj_tx_realloc(r_->oid[2], 50, 3);
    EXPECT_STREQ(static_cast<char*>(pmemobj_direct(r_->oid[2])), "three");
    r_->oid[3] = pmemobj_tx_realloc(r_->oid[3], 0, 3);
    EXPECT_TRUE(OID_IS_NULL(r_->oid[3]));
    r_->oid[4] = pmemobj_tx_realloc(OID_NULL, 50, 3);
    return pmemobj_tx_free(r_->oid[0]) == 0;
  };
  EXPECT_EQ(in_tx(pop_, [&] { return change() && false; }), ECANCELED);
  EXPECT_TRUE(OID_EQUALS(r_->oid[1], was));
  EXPECT_EQ(walk().size(), 4u);
  EXPECT_EQ(in_tx(pop_, change), 0);
  EXPECT_EQ(walk().size(), 3u);
  // Freed twice in one transaction.
  EXPECT_EQ(
      in_tx(pop_,
            [&] { return pmemobj_tx_free(r_->oid[4]) == 0 && pmemobj_tx_free(r_->oid[4]) == 0; }),
      EINVAL);
  EXPECT_EQ(walk().size(), 3u);
}

TEST_F(PmemobjTx, published_actions_belong_to_the_transaction) {
  for (const bool commits : {false, true}) {
    struct pobj_action act[2];
    const PMEMoid made = pmemobj_reserve(pop_, &act[0], 100, 1);
    pmemobj_set_value(pop_, &act[1], &r_->word[3], 9);
    EXPECT_EQ(in_tx(pop_,
                    [&] {
                      EXPECT_EQ(pmemobj_tx_publish(act, 2), 0);
                      EXPECT_EQ(r_->word[3], 0u);  // the commit sets it
                      return commits;
                    }),
              commits ? 0 : ECANCELED);
    EXPECT_EQ(r_->word[3], commits ? 9u : 0u);
    EXPECT_EQ(walk().size(), commits ? 1u : 0u);
    EXPECT_TRUE(!commits || OID_EQUALS(walk()[0], made));
  }
}

TEST_F(PmemobjTx, calls_beside_the_transaction_are_not_undone_with_it) {
  struct pobj_action act;
  EXPECT_EQ(in_tx(pop_,
                  [&] {
                    TX_ADD_DIRECT(&r_->word[0]);
                    r_->word[0] = 1;
                    EXPECT_EQ(pmemobj_alloc(pop_, &r_->oid[0], 100, 1, nullptr, nullptr), 0);
                    EXPECT_EQ(pmemobj_alloc(pop_, &r_->oid[1], 100, 2, nullptr, nullptr), 0);
                    pmemobj_free(&r_->oid[1]);
                    EXPECT_FALSE(OID_IS_NULL(pmemobj_reserve(pop_, &act, 100, 3)));
                    EXPECT_EQ(pmemobj_publish(pop_, &act, 1), 0);
                    EXPECT_FALSE(OID_IS_NULL(pmemobj_root(pop_, sizeof(Root))));
                    return false;
                  }),
            ECANCELED);
  EXPECT_EQ(r_->word[0], 0u);
  EXPECT_FALSE(OID_IS_NULL(r_->oid[0]));
  EXPECT_EQ(walk().size(), 2u);
}

TEST_F(PmemobjTx, locks_are_held_to_the_end_and_keep_their_state) {
  bool was_free = false;
  TX_BEGIN_PARAM(pop_, TX_PARAM_MUTEX, &r_->mutex, TX_PARAM_RWLOCK, &r_->rwlock) {
    TX_ADD_DIRECT(r_);  // the locks, too
    std::thread([&] {
      EXPECT_EQ(pmemobj_mutex_trylock(pop_, &r_->mutex), EBUSY);
      EXPECT_EQ(pmemobj_rwlock_tryrdlock(pop_, &r_->rwlock), EBUSY);
    }).join();
    std::memset(r_->word, 1, sizeof r_->word);
  }
  TX_END
  // Other threads wait when it aborts. The bytes that were saved know nothing of them.
  std::vector<std::thread> waiting;
  TX_BEGIN(pop_) {
    TX_ADD_DIRECT(r_);
    EXPECT_EQ(pmemobj_tx_lock(TX_PARAM_MUTEX, &r_->mutex), 0);
    EXPECT_EQ(pmemobj_tx_lock(TX_PARAM_MUTEX, &r_->mutex), 0);  // it has it
    for (int i = 0; i < 4; ++i) {
      waiting.emplace_back([&] {
        EXPECT_EQ(pmemobj_mutex_lock(pop_, &r_->mutex), 0);
        r_->word[1] += 1;
        EXPECT_EQ(pmemobj_mutex_unlock(pop_, &r_->mutex), 0);
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    r_->word[1] = 0;
    pmemobj_tx_abort(ECANCELED);
  }
  TX_ONABORT { was_free = pmemobj_mutex_trylock(pop_, &r_->mutex) == 0; }
  TX_END
  EXPECT_FALSE(was_free);
  for (std::thread& t : waiting) t.join();
  EXPECT_EQ(r_->word[1], 0x0101010101010101u + 4);
  EXPECT_EQ(pmemobj_mutex_trylock(pop_, &r_->mutex), 0);
  EXPECT_EQ(pmemobj_mutex_unlock(pop_, &r_->mutex), 0);
}

void note_stage(PMEMobjpool*, pobj_tx_stage stage, void* arg) {
  static_cast<std::string*>(arg)->push_back(static_cast<char>('0' + stage));
}

TEST_F(PmemobjTx, a_callback_is_told_of_each_stage_of_the_outermost_level) {
  TX_BEGIN_CB(pop_, note_stage,
              &stages_){TX_BEGIN_CB(pop_, note_stage, &stages_){TX_SET_DIRECT(r_, word[0], 1);
}
TX_END
}  // namespace
TX_END
const auto told = [&](std::initializer_list<int> stages) {
  std::string s;
  for (int stage : stages) s.push_back(static_cast<char>('0' + stage));
  return s;
};
EXPECT_EQ(stages_, told({TX_STAGE_WORK, TX_STAGE_ONCOMMIT, TX_STAGE_FINALLY, TX_STAGE_NONE}));
stages_.clear();
TX_BEGIN_CB(pop_, note_stage, &stages_) { pmemobj_tx_abort(EINVAL); }
TX_END
EXPECT_EQ(stages_, told({TX_STAGE_ONABORT, TX_STAGE_FINALLY, TX_STAGE_NONE}));
}  // namespace tenuto::test

TEST_F(PmemobjTx, user_data_lasts_through_all_stages) {
  int data = 0;
  TX_BEGIN(pop_) {
    pmemobj_tx_set_user_data(&data);
    pmemobj_tx_abort(EINVAL);
  }
  TX_ONABORT { EXPECT_EQ(pmemobj_tx_get_user_data(), &data); }
  TX_FINALLY {
    EXPECT_EQ(pmemobj_tx_get_user_data(), &data);
    pmemobj_tx_set_user_data(nullptr);
  }
  TX_END
}

TEST_F(PmemobjTx, user_data_and_log_buffers) {
  size_t sizes[] = {100, 200};
  EXPECT_GE(pmemobj_tx_log_snapshots_max_size(sizes, 2), 300u);
  EXPECT_GE(pmemobj_tx_log_intents_max_size(10), 160u);
  PMEMoid buffer;
  ASSERT_EQ(pmemobj_alloc(pop_, &buffer, 4096, 1, nullptr, nullptr), 0);
  EXPECT_EQ(in_tx(pop_,
                  [&] {
                    EXPECT_EQ(pmemobj_tx_get_user_data(), nullptr);
                    pmemobj_tx_set_user_data(this);
                    EXPECT_EQ(pmemobj_tx_get_user_data(), this);
                    void* const p = pmemobj_direct(buffer);
                    EXPECT_EQ(pmemobj_tx_log_append_buffer(TX_LOG_TYPE_SNAPSHOT, p, 4096), 0);
                    EXPECT_EQ(pmemobj_tx_log_auto_alloc(TX_LOG_TYPE_SNAPSHOT, 0), 0);
                    return pmemobj_tx_add_range_direct(r_, sizeof *r_) == 0;
                  }),
            0);
  EXPECT_EQ(in_tx(pop_,
                  [&] {
                    int no_buffer = 0;
                    return pmemobj_tx_log_append_buffer(TX_LOG_TYPE_INTENT, &no_buffer, 4) == 0;
                  }),
            EINVAL);
}

TEST_F(PmemobjTx, two_pools_do_not_share_a_transaction) {
  const TempPath path("pmemobj-second");
  PMEMobjpool* const second = pmemobj_create(path.str().c_str(), nullptr, PMEMOBJ_MIN_POOL, 0600);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(in_tx(pop_, [&] { return pmemobj_tx_begin(second, nullptr, TX_PARAM_NONE) == 0; }),
            EINVAL);
  PMEMoid root2 = pmemobj_root(second, 64);
  EXPECT_EQ(in_tx(pop_, [&] { return pmemobj_tx_add_range(root2, 0, 8) == 0; }), EINVAL);
  EXPECT_EQ(pmemobj_pool_by_oid(root2), second);
  EXPECT_EQ(pmemobj_pool_by_ptr(r_), pop_);
  pmemobj_close(second);
}

using PmemobjDeathTest = PmemobjTx;
TEST_F(PmemobjDeathTest, calls_in_the_wrong_stage_end_the_process) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::unlink(path());  // the processes that end leave nothing
  EXPECT_DEATH(pmemobj_tx_alloc(8, 1), "outside of transaction");
  EXPECT_DEATH(pmemobj_tx_abort(1), "outside of transaction");
  EXPECT_DEATH(pmemobj_tx_end(), "without pmemobj_tx_begin");
  EXPECT_DEATH(
      {
        static_cast<void>(pmemobj_tx_begin(pop_, nullptr, TX_PARAM_NONE));
        static_cast<void>(pmemobj_tx_end());
      },
      "without pmemobj_tx_commit");
  EXPECT_DEATH(
      {
        static_cast<void>(pmemobj_tx_begin(pop_, nullptr, TX_PARAM_NONE));
        pmemobj_close(pop_);
      },
      "transaction is open");
  EXPECT_DEATH(static_cast<void>(pmemobj_tx_begin(nullptr, nullptr, TX_PARAM_NONE)),
               "no open pool");
  pmemobj_close(pop_);
  pop_ = nullptr;
}

}  // namespace
}  // namespace tenuto::test
