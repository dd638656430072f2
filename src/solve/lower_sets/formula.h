// What the papers say a lower-set sequence costs. With blocks V_1 .. V_k, L_i = V_1 + .. + V_i, cached nodes
// U_i = boundary(L_1) + .. + boundary(L_i):
//
//   overhead  sum of T(V_i without boundary(L_i))                 each forgotten node is computed once more
//   pass i    M(U_{i-1}) + 2 M(V_i) + back(L_i)                   cached before, values and gradients of the block,
//   back(L)   M(succ(L) - L) + M(pred(succ(L)) - L)               gradients after it, and what those read beside L
//   peak      the largest block pass
//
// `keep_last` keeps V_k from forward to backward: its time is not spent again, and the peak stays the same.
#pragma once

#include "papers/forward_view.h"
#include "reprise/solve.h"

namespace reprise::detail {

[[nodiscard]] Formula formula(const ForwardView& view, const Blocks& blocks, bool keep_last);

}  // namespace reprise::detail
