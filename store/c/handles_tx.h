// The handle of a transaction over objects, for the parts of the C API that take one.
#pragma once

#include "tenuto/pool.h"
#include "tenuto/tenuto_pool.h"
#include "tenuto/tx.h"

struct tenuto_tx {
  explicit tenuto_tx(tenuto::Pool& pool) : tx(pool, nullptr, 0) {}
  tenuto_tx(tenuto::Pool& pool, tenuto_tx& first) : tx(pool, first.tx, nullptr, 0) {}
  tenuto::Transaction tx;
};
