// What engine_tenuto.cc makes its cases of.
#pragma once

#include <memory>

#include "bench/tx/engine.h"
#include "tenuto/pool.h"

namespace bench {

// `area` is this thread's part of the root object.
std::unique_ptr<Work> make_tenuto_row(std::string_view name, tenuto::Pool& pool, void* area,
                                      const WorkSize& size);
std::unique_ptr<Work> make_tenuto_chain(const TxCase& what, tenuto::Pool& pool, void* area,
                                        const WorkSize& size);
std::unique_ptr<Work> make_tenuto_tree(const TxCase& what, tenuto::Pool& pool, void* area,
                                       const WorkSize& size);

}  // namespace bench
