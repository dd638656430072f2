#include "reprise/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "fixtures/steps.h"
#include "place/requests.h"
#include "reprise/graph_builder.h"
#include "reprise/solve.h"
#include "reprise/validate.h"
#include "support/input_error.h"
#include "support/short_actions.h"

namespace reprise {
namespace {

using test::c;
using test::c_in_place;
using test::f;

using testing::ElementsAre;
using testing::HasSubstr;

// x 0 arrives, weight 1 is resident; conv (op 0) makes y 2 with a workspace; relu_ (op 1) makes z 3 over y; the caller
// (op 2) makes seed 4, which is held, and takes memory; backward (op 3) makes the gradient 5.
CostedGraph small_step() {
  GraphBuilder b;
  const ValueId x = b.arriving(100), w = b.resident(10), y = b.value(40), z = b.value(40), seed = b.value(8),
                gradient = b.value(16);
  b.overwrite(z, y);
  b.hold(seed);
  b.output(gradient);
  b.op({.name = "conv", .workspace_bytes = 24, .inputs = {x, w}, .outputs = {y}});
  b.op({.name = "relu_", .inputs = {y}, .outputs = {z}});
  b.op({.name = "caller", .phase = Phase::kCaller, .workspace_bytes = 300, .inputs = {z}, .outputs = {seed}});
  b.op({.name = "conv'", .phase = Phase::kBackward, .inputs = {z, seed, x}, .outputs = {gradient}});
  return b.build();
}

const Plan kInPlace{.actions = {c(0), c_in_place(1), c(2), c(3), f(3), f(0)}};
const Plan kCopying{.actions = {c(0), c(1), f(2), c(2), c(3), f(3), f(0)}};
const Plan kTwice{.actions = {c(0), c(0), c_in_place(1), c(2), c(3), f(3), f(0)}};

TEST(RequestsTest, AreOneForEachStorageWorkspaceAndSecondCopy) {
  const auto [graph, costs] = small_step();
  const auto of = [&](const Plan& plan) {
    const auto violation = validate(graph, plan);
    EXPECT_FALSE(violation) << violation->message;
    std::vector<std::pair<std::size_t, Buffer>> found;
    for (const detail::Request& request : detail::requests(graph, costs, plan)) {
      found.emplace_back(request.value == kNoValue ? 99 : index(request.value), request.buffer);
    }
    return found;
  };
  const std::pair gradient{std::size_t{5}, Buffer{.begin = 3, .end = 6, .bytes = 16, .outlives = true}};
  // y and z are one storage. The caller's part lies outside, and so does what is there at the start.
  EXPECT_THAT(of(kInPlace), ElementsAre(std::pair(2, Buffer{.begin = 0, .end = 4, .bytes = 40}),
                                        std::pair(99, Buffer{.begin = 0, .end = 1, .bytes = 24}), gradient));
  EXPECT_THAT(of(kCopying), ElementsAre(std::pair(2, Buffer{.begin = 0, .end = 2, .bytes = 40}),
                                        std::pair(99, Buffer{.begin = 0, .end = 1, .bytes = 24}),
                                        std::pair(3, Buffer{.begin = 1, .end = 5, .bytes = 40}),
                                        std::pair(5, Buffer{.begin = 4, .end = 7, .bytes = 16, .outlives = true})));
  EXPECT_THAT(of(kTwice), ElementsAre(std::pair(2, Buffer{.begin = 0, .end = 5, .bytes = 40}),
                                      std::pair(99, Buffer{.begin = 0, .end = 1, .bytes = 24}),
                                      std::pair(2, Buffer{.begin = 1, .end = 2, .bytes = 40}),
                                      std::pair(99, Buffer{.begin = 1, .end = 2, .bytes = 24}),
                                      std::pair(5, Buffer{.begin = 4, .end = 7, .bytes = 16, .outlives = true})));
}

TEST(PlaceTest, GivesEveryRequestAnAddress) {
  const auto [graph, costs] = small_step();
  const Placement found = place(graph, costs, kInPlace, {.alignment_bytes = 8});
  EXPECT_EQ(found.load_bytes, 64);
  EXPECT_EQ(found.arena_bytes, 64);
  EXPECT_EQ(found.addresses.size(), 3U);
  EXPECT_EQ(found.addresses[2].offset, 64 - 16);  // the gradient, at the top
  EXPECT_EQ(validate_addresses(graph, costs, kInPlace, found), std::nullopt);
}

TEST(PlaceTest, PlacesTheStepsOfTheFixtures) {
  for (const test::StepFixture& fixture : test::step_fixtures()) {
    const auto [graph, costs] = fixture.make();
    const Solution solution = solve(graph, costs, {.planner = "none"});
    const Placement found = place(graph, costs, solution.plan, {.alignment_bytes = 1});
    EXPECT_EQ(validate_addresses(graph, costs, solution.plan, found), std::nullopt) << fixture.name;
    EXPECT_LE(found.load_bytes, fixture.peak_bytes) << fixture.name;
    EXPECT_LE(found.load_bytes, found.arena_bytes) << fixture.name;
  }
}

TEST(PlaceTest, RefusesCostsOfAnotherGraph) {
  const auto [graph, costs] = small_step();
  EXPECT_THAT(input_error([&, &graph = graph] { static_cast<void>(place(graph, {}, kInPlace, {})); }),
              HasSubstr("time"));
}

class ValidateAddressesTest : public testing::Test {
 protected:
  // What is wrong when one address is changed.
  template <typename Change>
  std::string after(Change change) {
    Placement changed = placement_;
    change(changed);
    return validate_addresses(step_.graph, step_.costs, kCopying, changed).value_or("nothing");
  }

  const CostedGraph step_ = small_step();
  // y at 0 with the workspace above; z above y, where the workspace was; the gradient at 0.
  const Placement placement_{.addresses = {{.action = 0, .value = value_id(2), .offset = 0},
                                           {.action = 0, .value = kNoValue, .offset = 40},
                                           {.action = 1, .value = value_id(3), .offset = 40},
                                           {.action = 4, .value = value_id(5), .offset = 0}},
                             .arena_bytes = 80,
                             .alignment_bytes = 8,
                             .load_bytes = 80};
};

TEST_F(ValidateAddressesTest, AcceptsWhatDoesNotOverlap) {
  EXPECT_EQ(after([](Placement&) {}), "nothing");
  EXPECT_EQ(after([](Placement& p) { p.addresses[3].offset = 16; }), "nothing");
}

TEST_F(ValidateAddressesTest, SaysWhatOverlaps) {
  EXPECT_EQ(after([](Placement& p) { p.addresses[1].offset = 32; }),
            "action 0: the workspace at 32 overlaps what is live there: action 0: value 2");
  EXPECT_EQ(after([](Placement& p) { p.addresses[2].offset = 8; }),
            "action 1: value 3 at 8 overlaps what is live there: action 0: value 2");
  EXPECT_EQ(after([](Placement& p) { p.addresses[3].offset = 32; }),
            "action 4: value 5 at 32 overlaps what is live there: action 1: value 3");
}

TEST_F(ValidateAddressesTest, SaysWhatIsMissingOrTooMuch) {
  EXPECT_EQ(after([](Placement& p) { p.addresses.pop_back(); }), "action 4: value 5 needs 16 bytes and has no address");
  EXPECT_EQ(after([](Placement& p) { p.addresses.push_back(p.addresses[1]); }),
            "action 0: the workspace has two addresses");
  EXPECT_EQ(after([](Placement& p) { p.addresses.push_back({.action = 3, .value = value_id(4), .offset = 0}); }),
            "action 3: value 4 has an address, but the plan asks for no memory in the arena there");
  EXPECT_EQ(after([](Placement& p) { p.addresses.push_back({.action = 99, .value = kNoValue, .offset = 0}); }),
            "action 99: the workspace has an address, but the plan asks for no memory in the arena there");
}

TEST_F(ValidateAddressesTest, SaysWhatTheLoadIs) {
  EXPECT_EQ(after([](Placement& p) { p.load_bytes = 72; }),
            "the load is said to be 72 bytes, but up to 80 are live at once");
}

TEST_F(ValidateAddressesTest, SaysWhatLiesOutsideOrAskew) {
  EXPECT_EQ(after([](Placement& p) { p.arena_bytes = 79; }),
            "action 1: value 3 at 40 with 40 bytes is not inside the arena of 79 bytes");
  EXPECT_EQ(after([](Placement& p) { p.addresses[0].offset = -8; }),
            "action 0: value 2 at -8 with 40 bytes is not inside the arena of 80 bytes");
  EXPECT_EQ(after([](Placement& p) { p.addresses[3].offset = 4; }),
            "action 4: value 5 at 4 is not at a multiple of 8 bytes");
  EXPECT_EQ(after([](Placement& p) { p.alignment_bytes = 0; }), "the alignment is 0 bytes; it must be from 1 to 2^30");
}

}  // namespace
}  // namespace reprise
