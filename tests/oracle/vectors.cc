#include "oracle/vectors.h"

namespace reprise::test {
namespace {

Known chain_of_five() {
  const KnownFamily family{.lower_sets = 6,
                           .sequences = 16,
                           .smallest_budget = 5,
                           .least_overhead = {{5, 2}, {6, 1}},
                           .most_overhead = {{5, 2}, {6, 3}, {7, 4}, {10, 5}}};
  return {.name = "G1",
          .dag = dag_from_edges({{0, 1}, {1, 2}, {2, 3}, {3, 4}}, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}),
          .all = family,
          .ancestors = family,
          .least_cache = {{5, 3, 2}, {6, 2, 3}, {7, 1, 4}},
          .sequences = {{{{0, 1}, {0, 1, 2}, {0, 1, 2, 3}}, 2, {5, 4, 5, 5}, 3, 5},
                        {{{0}, {0, 1, 2}}, 3, {3, 6, 6}, 2, 5},
                        {{{0, 1}}, 4, {5, 7}, 1, 5}}};
}

Known chain_of_six() {
  const KnownFamily family{.lower_sets = 7,
                           .sequences = 32,
                           .smallest_budget = 20,
                           .least_overhead = {{20, 1}},
                           .most_overhead = {{20, 22}, {24, 23}, {36, 24}}};
  return {.name = "G2",
          .dag = dag_from_edges({{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}, {10, 1, 1, 10, 1, 1}, {4, 4, 4, 2, 2, 2}),
          .all = family,
          .ancestors = family,
          .least_cache = {{20, 6, 13}, {25, 4, 23}, {30, 2, 14}},
          .sequences = {{{{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}}, 1, {12, 16, 18, 18, 20, 20}, 16, 20},
                        {{{0, 1}, {0, 1, 2}}, 22, {20, 14, 20}, 8, 16},
                        {{{0, 1}, {0, 1, 2, 3}}, 13, {20, 18, 14}, 6, 16},
                        {{{0, 1}}, 23, {20, 24}, 4, 16},
                        {{{0, 1, 2, 3}}, 14, {30, 10}, 2, 18}}};
}

Known diamond_and_tail() {
  const Staircase most{{12, 11}, {13, 12}, {15, 21}, {16, 22}, {17, 31}, {18, 32}};
  return {.name = "G3",
          .dag = dag_from_edges({{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}}, {10, 10, 10, 1, 1}, {2, 3, 1, 2, 1}),
          .all = {.lower_sets = 7,
                  .sequences = 24,
                  .smallest_budget = 12,
                  .least_overhead = {{12, 1}},
                  .most_overhead = most},
          .ancestors = {.lower_sets = 6,
                        .sequences = 12,
                        .smallest_budget = 12,
                        .least_overhead = {{12, 11}},
                        .most_overhead = most},
          .least_cache = {{12, 6, 2}},
          .sequences = {{{{0}, {0, 1, 2}, {0, 1, 2, 3}}, 1, {8, 12, 11, 10}, 8, 12}}};
}

Known two_residual_blocks() {
  const KnownFamily family{.lower_sets = 8,
                           .sequences = 64,
                           .smallest_budget = 24,
                           .least_overhead = {{24, 11}, {28, 1}},
                           .most_overhead = {{24, 21}, {28, 22}, {32, 23}, {40, 33}, {48, 34}}};
  return {
      .name = "G4",
      .dag = dag_from_edges({{0, 1}, {1, 2}, {2, 3}, {0, 3}, {3, 4}, {4, 5}, {5, 6}, {3, 6}}, {10, 10, 1, 1, 10, 1, 1},
                            {4, 4, 4, 4, 2, 2, 4}),
      .all = family,
      .ancestors = family,
      .least_cache = {{24, 14, 21}, {30, 12, 22}, {36, 8, 23}},
      .sequences = {
          {{{0}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5}}, 11, {20, 24, 24, 24, 22, 24}, 16, 24},
          {{{0}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4, 5}}, 21, {20, 24, 24, 24, 22}, 14, 24},
          {{{0, 1, 2}, {0, 1, 2, 3}}, 22, {28, 24, 28}, 12, 24},
          {{{0, 1, 2}}, 23, {28, 32}, 8, 26}}};
}

Known small_unet() {
  const KnownFamily family{.lower_sets = 7,
                           .sequences = 32,
                           .smallest_budget = 36,
                           .least_overhead = {{36, 1}},
                           .most_overhead = {{36, 31}, {46, 41}, {54, 51}}};
  return {.name = "G5",
          .dag = dag_from_edges({{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {1, 3}, {0, 4}}, {10, 10, 10, 10, 10, 1},
                                {8, 4, 2, 4, 8, 1}),
          .all = family,
          .ancestors = family,
          .least_cache = {{36, 12, 31}},
          .sequences = {{{{0}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3, 4}}, 1, {32, 36, 30, 35, 28}, 26, 36},
                        {{{0}, {0, 1, 2, 3}}, 31, {32, 36, 30}, 12, 36},
                        {{{0, 1}}, 31, {44, 42}, 12, 40},
                        {{}, 51, {54}, 0, 38}}};
}

Known parallel_branches() {
  return {.name = "G6",
          .dag = dag_from_edges({{0, 1}, {1, 2}, {2, 3}, {3, 7}, {0, 4}, {4, 5}, {5, 6}, {6, 7}},
                                {1, 10, 10, 1, 10, 10, 1, 1}, {1, 8, 1, 1, 8, 1, 1, 1}),
          .all = {.lower_sets = 18,
                  .sequences = 1008,
                  .smallest_budget = 27,
                  .least_overhead = {{27, 1}},
                  .most_overhead = {{27, 23}, {28, 33}, {31, 42}, {43, 43}, {44, 44}}},
          .ancestors = {.lower_sets = 9,
                        .sequences = 30,
                        .smallest_budget = 28,
                        .least_overhead = {{28, 32}, {33, 22}},
                        .most_overhead = {{28, 33}, {31, 42}, {43, 43}, {44, 44}}},
          .least_cache = {{27, 17, 23}, {33, 2, 33}, {40, 2, 24}},
          .sequences = {{{{0, 1}, {0, 1, 4}, {0, 1, 2, 4, 5}, {0, 1, 2, 3, 4, 5, 6}}, 1, {27, 27, 23, 24, 23}, 21, 27},
                        {{{0, 1}, {0, 1, 4}}, 23, {27, 27, 27}, 17, 27},
                        {{{0, 1, 2}}, 33, {29, 26}, 2, 20},
                        {{{0, 1, 2, 3}}, 42, {32, 24}, 2, 22},
                        {{{0, 1, 2, 4, 5}}, 24, {40, 8}, 2, 28}}};
}

}  // namespace

Known chain_of_three() {
  const KnownFamily family{.lower_sets = 4,
                           .sequences = 4,
                           .smallest_budget = 10,
                           .least_overhead = {{10, 4}, {11, 3}},
                           .most_overhead = {{10, 4}, {13, 5}, {14, 6}}};
  return {.name = "H",
          .dag = dag_from_edges({{0, 1}, {1, 2}}, {1, 2, 3}, {1, 2, 4}),
          .all = family,
          .ancestors = family,
          .least_cache = {{10, 2, 4}, {13, 1, 5}, {14, 0, 6}},
          .sequences = {{{{0}, {0, 1}}, 3, {4, 9, 11}, 3, 9},
                        {{{0}}, 5, {4, 13}, 1, 9},
                        {{{0, 1}}, 4, {10, 10}, 2, 9},
                        {{}, 6, {14}, 0, 9}}};
}

std::vector<Known> known_graphs() {
  return {chain_of_five(),       chain_of_six(), diamond_and_tail(),
          two_residual_blocks(), small_unet(),   parallel_branches()};
}

}  // namespace reprise::test
