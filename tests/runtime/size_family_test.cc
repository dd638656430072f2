// Sessions of a family: whose plans they run with, and what they search for beside the steps.
#include "runtime/session/size_family.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "runtime/impatient_step.h"
#include "runtime/session/plan_book.h"

namespace reprise::test {
namespace {

// A step that is a member of a family which knows two plans: that without recomputation, and that of least peak or the
// one for a budget just below what the step takes without recomputation.
struct Member : ImpatientStep {
  enum class Knows : std::uint8_t { kLeastPeak, kAlmostPlain };

  explicit Member(Knows knows) : ImpatientStep(resnet_case()) {
    options->measure = false;  // Measured times differ, and sometimes no plan is faster.
    options->planning_seconds = 100;
    budget = half();
    options->budget_bytes.reset();
    const std::int64_t plain = session->plan_ahead(session->outside_bytes(0)).simulation.peak_bytes;
    options->budget_bytes = 1;
    const std::int64_t smallest = session->plan_ahead(session->outside_bytes(0)).smallest_budget_bytes;
    plain_bytes = plain + session->outside_bytes(0);
    options->budget_bytes = knows == Knows::kLeastPeak ? smallest : plain_bytes - 1;
    const Plan known = session->plan_ahead(session->outside_bytes(0)).plan;
    auto hurried = std::make_shared<SessionOptions>();
    hurried->planning_seconds = 0;  // for the family's own search
    hurried->waiting_seconds = 10;
    family = std::make_shared<SizeFamily>(SizeFamily::Profiled{.program = step.program,
                                                               .graph = session->graph(),
                                                               .costs = session->costs(),
                                                               .caller = session->caller(),
                                                               .plans = {known}},
                                          hurried);
    (void)family->version();  // its search has come to its end
    Surroundings around;
    around.known_tensors = [this] { return state.tensors; };
    around.caller_is_user = false;
    around.family = family;
    session = std::make_unique<Session>(CapturedStep{.program = step.program}, options, std::move(around));
  }

  [[nodiscard]] FoundPlan asked() const {
    return *family->find(session->graph(), session->costs(), session->room_bytes());
  }

  std::int64_t budget = 0, plain_bytes = 0;
  std::shared_ptr<SizeFamily> family;
};

TEST(SizeFamilies, LearnWhatAMemberHasSearchedFor) {
  Member member(Member::Knows::kLeastPeak);
  member.options->budget_bytes = member.budget;
  member.run();
  const auto first = member.session->current();
  ASSERT_TRUE(first->found.is_of_family);
  ASSERT_TRUE(first->found.is_provisional);
  const FoundPlan before = member.asked();
  const auto settled = member.session->settled();
  EXPECT_LT(settled->found.simulation.time_ns, first->found.simulation.time_ns);
  const FoundPlan after = member.asked();
  EXPECT_LT(after.simulation.time_ns, before.simulation.time_ns);
  EXPECT_LE(after.simulation.time_ns, settled->found.simulation.time_ns);
  member.run();  // The family is another one now, but this plan is for this size.
  EXPECT_EQ(member.session->current(), settled);
}

TEST(SizeFamilies, AreNotSearchedBeyondAPlanThatIsGoodEnough) {
  Member member(Member::Knows::kAlmostPlain);
  member.options->planning_seconds = 1000;
  member.options->budget_bytes = member.plain_bytes - 1;
  member.run();
  const auto first = member.session->current();
  ASSERT_GT(first->found.simulation.recompute_ns, 0);
  ASSERT_FALSE(is_far_from_bound(member.session->graph(), member.session->costs(),
                                 {first->found.plan, first->found.simulation}));
  EXPECT_TRUE(first->found.is_provisional);  // it is compared with the bound beside the step
  EXPECT_EQ(member.session->settled(), first);
  EXPECT_FALSE(first->found.is_provisional);
  const PlanBook book(member.session->graph(), member.session->costs(), "auto");
  EXPECT_TRUE(book.is_worth_a_search(*first->room_bytes, 1));
}

}  // namespace
}  // namespace reprise::test
