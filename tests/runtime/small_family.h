// The text of a small step of any size, loss = sum(x * w) for x of fewer than 64 rows, which is also in
// docs/formats.md.
#pragma once

#include <string>

#include "runtime/files/program_text.h"

namespace reprise::test {

inline std::string small_family() {
  return "{\n\"format\":\"reprise.family\",\"version\":1,\n\"torch\":\"" + detail::torch_version() +
         R"(","device":"cpu",
"name":"product",
"state":["w"],
"symbols":[
{"batch":0,"dimension":0,"here":4,"least":2}
],
"conditions":[
[{"symbol":0},64,"less"]
],
"computed":[
[{"symbol":0}],
[{"symbol":0},12,"multiply"]
],
"scopes":["layer"],
"geometries":[
{"dtype":"float32","sizes":[{"computed":0},3],"strides":[3,1]},
{"dtype":"float32","sizes":[3],"strides":[1]},
{"dtype":"float32","sizes":[],"strides":[]},
{"dtype":"float32","sizes":[{"computed":0},3],"strides":[0,0]}
],
"memory":{
"bytes":[{"computed":1},12,{"computed":1},4,4,{"computed":1},12],
"resident":[0,1],
"seeds":[4],
"elsewhere":[]},
"inputs":[
{"use":[0,0],"batch":0},
{"use":[1,1],"state":0}
],
"constants":[],
"forward":[
{"name":"mul","scope":0,"call":{"operator":"aten::mul.Tensor","arguments":[[0,0],[1,1]]},"outputs":[[2,0]]},
{"name":"sum","call":{"operator":"aten::sum","arguments":[[2,0],null]},"outputs":[[3,2]]}
],
"outputs":[[3,2]],
"seeds":[[4,2]],
"backward":[
{"name":"mul_backward","scope":0,"call":{"operator":"aten::mul.Tensor","arguments":[[0,0],[4,3]]},"outputs":[[5,0]]},
{"name":"sum_backward","scope":0,"call":{"operator":"aten::sum.dim_IntList","arguments":[[5,0],{"ints":[0]},false,null]},"outputs":[[6,1]]}
],
"gradients":[
{"use":null},
{"use":[6,1],"state":0,"variable":1,"name":"sum_backward","scope":0}
]
}
)";
}

}  // namespace reprise::test
