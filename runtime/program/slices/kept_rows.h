// A loss over rows that reads one number of each row, so that what lies before it can be cut.
//
// nll_loss picks from every row of log-probabilities that of its label, and adds these up. The sum cannot be cut
// without rounding differently. But the picking can: it becomes a call of its own, whose result has one number a row,
// and nll_loss of that one column adds up the same numbers in the same order. A row whose label is to be ignored picks
// any number and is ignored in the column.
//
//   loss = nll_loss(rows [n, words], labels)
//   picked = gather(rows, labels, with 0 in place of ignored ones) [n, 1];  loss = nll_loss(picked, 0 or ignored)
#pragma once

#include "runtime/program/program.h"

namespace reprise {

// Does so for every such loss without weights of classes whose rows are a matrix. Returns how many there were.
std::size_t keep_rows(Program& program);

}  // namespace reprise
