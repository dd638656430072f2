// Plans for a step with communicators, made from any planner's plans of the joined step (joined.h): each is taken apart
// into starts and waits again, hoisted, and judged by its simulated time.
//
// `auto` plans at three prices of a collective: all of its time, a half and a twentieth. Where collectives are hidden,
// gathering a weight again costs the device next to nothing, so that a low price finds the plans which drop weights and
// keep activations; where communicators are busy, a price near one is right. What a plan leaves of the budget is used
// to hoist, so that plans below the budget are candidates too. Other planners plan once, at the full price.
//
// A plan that fills the budget leaves no room to hoist. So the best plan is hoisted without a budget, what is in flight
// beside each op is reserved there, and the search is made again, a few times over.
// Tested by tests/property/hoist_test.cc.
#pragma once

#include "reprise/solve.h"
#include "solve/front.h"
#include "solve/planner.h"
#include "solve/problem.h"

namespace reprise::detail {

// REQUIRES: the step has communicators.
void propose_overlapping(const Planner& planner, const Problem& problem, const SolveOptions& options, Front& front,
                         Solution& solution);

}  // namespace reprise::detail
