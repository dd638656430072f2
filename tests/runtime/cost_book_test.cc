// Costs of calls, as several processes keep them in one file.
#include "runtime/costs/cost_book.h"

#include <gtest/gtest.h>

#include "runtime/files/program_io.h"
#include "runtime/own_cache.h"
#include "runtime/small_program.h"

namespace reprise {
namespace {

// A step with this operator of one operand beside the others.
CapturedStep step_with(const std::string& name) {
  const std::string op = "{\"name\":\"" + name + "\",\"call\":{\"operator\":\"aten::" + name +
                         "\",\"arguments\":[[0,0]]},\"outputs\":[[6,0]]},\n";
  return {.program = parse_program(test::small_program(op, ",24"), "small").program};
}

TEST(CostBook, KeepsWhatAnotherProcessHasWrittenMeanwhile) {
  CostBook one(at::kCPU), other(at::kCPU);
  (void)one.price(step_with("neg"));
  (void)other.price(step_with("abs"));
  const CostBook later(at::kCPU);
  for (const CostBook* book : {&one, &other}) {
    EXPECT_FALSE(book->calls().empty());
    for (const auto& [call, cost] : book->calls()) EXPECT_TRUE(later.calls().contains(call)) << call;
  }
  EXPECT_GT(later.calls().size(), one.calls().size());
}

}  // namespace
}  // namespace reprise
