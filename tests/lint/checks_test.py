"""The checks of the sources must find what they are there for."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import check_layering  # noqa: E402
import check_sizes  # noqa: E402


def tree(folder: str, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Path(folder)


class LayeringTest(unittest.TestCase):
    def errors(self, name: str, line: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, {name: line + "\n", "src/graph/lower_sets.h": "", "tools/args.h": "",
                                 "torch/program.h": ""})
            return check_layering.check(root)[0]

    def test_accepts_what_a_layer_may_know(self):
        for name, line in [
            ("src/graph/graph.cc", "#include <vector>"),
            ("src/graph/graph.cc", '#include "reprise/error.h"'),
            ("src/graph/graph.cc", '#include "check.h"'),
            ("src/graph/graph.cc", '#include "lower_sets.h"'),
            ("src/solve/chen.cc", '#include "graph/lower_sets.h"'),
            ("src/io/files.cc", "#include <fstream>"),
            ("src/io/json.cc", "#include <nlohmann/json.hpp>"),
            ("tools/main.cc", "#include <CLI/CLI.hpp>"),
            ("tools/main.cc", "#include <nlohmann/json.hpp>"),
            ("tools/main.cc", '#include "args.h"'),
            ("tools/main.cc", "#include <unistd.h>"),
            ("include/reprise/reprise.h", '#include "reprise/io.h"'),
            ("src/graph/graph.cc", "// never calls getenv()"),
            ("torch/executor.cc", "#include <ATen/ATen.h>"),
            ("torch/executor.cc", "#include <chrono>"),
            ("torch/executor.cc", '#include "program.h"'),
            ("torch/executor.cc", '#include "reprise/plan.h"'),
            ("include/reprise/torch/capture.h", "#include <ATen/core/Tensor.h>"),
            ("include/reprise/torch.h", '#include "reprise/torch/capture.h"'),
            ("torch/program_reader.cc", '#include "io/json_reader.h"'),
            ("python/bindings/core.cc", "#include <pybind11/pybind11.h>"),
            ("python/bindings/core.cc", '#include "reprise/solve.h"'),
            ("python/bindings/torch.cc", "#include <torch/extension.h>"),
            ("python/bindings/torch.cc", '#include "torch/program.h"'),
            ("torch/executor.cc", '#include "torch/program.h"'),
        ]:
            self.assertEqual(self.errors(name, line), [], f"{name}: {line}")

    def test_refuses_what_it_may_not(self):
        for name, line in [
            ("include/reprise/graph.h", "#include <torch/torch.h>"),
            ("include/reprise/graph.h", "#include <nlohmann/json_fwd.hpp>"),
            ("include/reprise/io.h", "#include <nlohmann/json_fwd.hpp>"),
            ("src/solve/chen.cc", "#include <nlohmann/json.hpp>"),
            ("include/reprise/graph.h", '#include "reprise/plan.h"'),
            ("src/plan/expand.cc", "#include <ATen/ATen.h>"),
            ("src/plan/expand.cc", '#include "c10/core/Device.h"'),
            ("src/io/graph_json.cc", "#include <pybind11/pybind11.h>"),
            ("src/io/graph_json.cc", "#include <CLI/CLI.hpp>"),
            ("src/io/graph_json.cc", "#include <unistd.h>"),
            ("src/graph/graph.cc", '#include "solve/chen.h"'),
            ("src/plan/validate.cc", '#include "reprise/solve.h"'),
            ("src/solve/chen.cc", "#include <chrono>"),
            ("src/solve/chen.cc", "  # include <random>"),
            ("src/solve/chen.cc", '#include "io/json.h"'),
            ("src/simulate/simulate.cc", "#include <iostream>"),
            ("src/simulate/simulate.cc", 'auto home = std::getenv("HOME");'),
            ("src/other/new.cc", ""),
            ("tools/main.cc", '#include "graph/lower_sets.h"'),
            ("tools/main.cc", '#include "reprise/torch/capture.h"'),
            ("tools/main.cc", '#include "torch/program.h"'),
            ("torch/executor.cc", '#include "torch/torch.h"'),
            ("include/reprise/torch/capture.h", "#include <torch/torch.h>"),
            ("include/reprise/torch/capture.h", '#include "torch/program.h"'),
            ("include/reprise/torch.h", "#include <ATen/ATen.h>"),
            ("torch/executor.cc", '#include "graph/lower_sets.h"'),
            ("torch/executor.cc", "#include <nlohmann/json.hpp>"),
            ("torch/executor.cc", "#include <pybind11/pybind11.h>"),
            ("python/bindings/core.cc", "#include <torch/extension.h>"),
            ("python/bindings/torch.cc", '#include "graph/lower_sets.h"'),
        ]:
            self.assertNotEqual(self.errors(name, line), [], f"{name}: {line}")


class SizesTest(unittest.TestCase):
    def errors(self, files: dict[str, int]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            return check_sizes.check(tree(folder, {name: "\n" * lines for name, lines in files.items()}))[1]

    def test_accepts_files_and_folders_at_their_limits(self):
        self.assertEqual(self.errors({"src/graph/a.cc": 500, "tests/unit/a_test.cc": 800, "tools/main.cc": 100}), [])

    def test_refuses_a_file_over_its_limit(self):
        self.assertEqual(len(self.errors({"src/graph/a.cc": 501})), 1)
        self.assertEqual(len(self.errors({"tests/unit/a_test.cc": 801})), 1)

    def test_refuses_a_folder_over_its_budget(self):
        budget = next(budget for name, _, budget in check_sizes.FOLDERS if name == "tools")
        full = {f"tools/{i}.cc": budget // 4 for i in range(4)}
        self.assertEqual(self.errors(full), [])
        self.assertEqual(len(self.errors(full | {"tools/more.cc": 4})), 1)

    def test_counts_the_torch_headers_with_torch(self):
        files = {f"src/graph/{i}.cc": 500 for i in range(12)} | {"include/reprise/torch/capture.h": 100}
        self.assertEqual(self.errors(files), [])


if __name__ == "__main__":
    unittest.main()
