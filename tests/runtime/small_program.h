// The text of a small program, loss = sum(x * w), to which a test can add ops.
#pragma once

#include <string>

#include "runtime/files/program_text.h"

namespace reprise::test {

// `ops` are lines of forward ops, each with a comma at its end. They may make values from 6 on, which nothing reads and
// whose bytes are in `more_bytes`.
inline std::string small_program(const std::string& ops = "", const std::string& more_bytes = "") {
  return "{\n\"format\":\"reprise.program\",\"version\":1,\n\"torch\":\"" + detail::torch_version() +
         "\",\"device\":\"cpu\",\n\"name\":\"small\",\n\"state\":[\"unused\",\"w\"],\n\"scopes\":[\"layer\"],\n"
         R"("geometries":[
{"dtype":"float32","sizes":[2,3],"strides":[3,1]},
{"dtype":"float32","sizes":[],"strides":[]},
{"dtype":"float32","sizes":[2,3],"strides":[0,0]}
],
"values":{
"bytes":[24,24,24,4,4,24)" +
         more_bytes + R"(],
"resident":[0,1],
"arriving":[],
"held":[3,4],
"overwrites":[]},
"inputs":[
{"use":[0,0],"batch":0},
{"use":[1,0],"state":1}
],
"gradients":[
{"use":null},
{"use":[5,0],"state":1}
],
"forward_outputs":[[3,1]],
"seeds":[[4,1]],
"new_contents":[],
"constants":[],
"ops":[
{"name":"mul","scope":0,"call":{"operator":"aten::mul.Tensor","arguments":[[0,0],[1,0]]},"outputs":[[2,0]]},
)" + ops +
         R"({"name":"sum","call":{"operator":"aten::sum","arguments":[[2,0],null]},"outputs":[[3,1]]},
{"name":"caller","kind":"caller","phase":"caller","once":true,"also_reads":[3],"also_makes":[4]},
{"name":"mul_backward","scope":0,"phase":"backward","call":{"operator":"aten::mul.Tensor","arguments":[[0,0],[4,2]]},"outputs":[[5,0]]},
{"name":"hand_over","kind":"hand_over","phase":"backward","once":true,"workspace_bytes":24,"also_reads":[5]}
]
}
)";
}

// The text with the first `old` replaced.
inline std::string changed(std::string text, const std::string& old, const std::string& by) {
  return text.replace(text.find(old), old.size(), by);
}

}  // namespace reprise::test
