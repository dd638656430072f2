"""Tests that the checks of the sources find what they are made to find."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "checks"))
import layering
import sizes


def tree(folder: str, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Path(folder)


class LayeringTest(unittest.TestCase):
    OTHERS = {"src/papers/lower_sets.h": "", "tools/args.h": "", "runtime/messages.h": "", "runtime/program/program.h": "",
              "runtime/session/session.h": "", "python/bindings/core.h": "", "python/reprise/errors.py": "",
              "python/reprise/api/plan.py": "", "python/reprise/show/report.py": "", "python/reprise/trace/nodes.py": "",
              "python/reprise/trace/__init__.py": ""}

    def errors(self, files: dict[str, str]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            return layering.check(tree(folder, self.OTHERS | {name: text + "\n" for name, text in files.items()}))[0]

    def accepts(self, cases: list[tuple[str, str]]):
        for name, line in cases:
            self.assertEqual(self.errors({name: line}), [], f"{name}: {line}")

    def refuses(self, cases: list[tuple[str, str]]):
        for name, line in cases:
            self.assertEqual(len(self.errors({name: line})), 1, f"{name}: {line}")

    def test_the_core_knows_what_is_below_and_stays_pure(self):
        self.accepts([
            ("src/graph/graph.cc", "#include <vector>"),
            ("src/graph/graph.cc", '#include "reprise/error.h"'),
            ("src/graph/graph.cc", '#include "check.h"'),
            ("src/graph/graph.cc", "// never calls getenv()"),
            ("src/papers/graph.cc", '#include "lower_sets.h"'),
            ("src/solve/chain/chen.cc", '#include "papers/lower_sets.h"'),
            ("src/plan/expand.cc", '#include "papers/lower_sets.h"'),
            ("src/io/files.cc", "#include <fstream>"),
            ("src/io/json.cc", "#include <nlohmann/json.hpp>"),
            ("include/reprise/reprise.h", '#include "reprise/io.h"'),
        ])
        self.refuses([
            ("include/reprise/graph.h", "#include <torch/torch.h>"),
            ("include/reprise/graph.h", "#include <nlohmann/json_fwd.hpp>"),
            ("include/reprise/io.h", "#include <nlohmann/json_fwd.hpp>"),
            ("include/reprise/graph.h", '#include "reprise/plan.h"'),
            ("include/reprise/new.h", ""),
            ("src/other/new.cc", ""),
            ("src/graph/graph.cc", '#include "papers/lower_sets.h"'),
            ("src/graph/graph.cc", '#include "solve/chen.h"'),
            ("src/graph/graph.cc", '#include "reprise/torch/errors.h"'),
            ("src/plan/expand.cc", "#include <ATen/ATen.h>"),
            ("src/plan/expand.cc", '#include "c10/core/Device.h"'),
            ("src/plan/validate.cc", '#include "reprise/solve.h"'),
            ("src/simulate/simulate.cc", "#include <iostream>"),
            ("src/simulate/simulate.cc", 'auto home = std::getenv("HOME");'),
            ("src/solve/chain/chen.cc", "#include <nlohmann/json.hpp>"),
            ("src/solve/chain/chen.cc", "#include <chrono>"),
            ("src/solve/chain/chen.cc", "  # include <random>"),
            ("src/solve/chain/chen.cc", '#include "io/json.h"'),
            ("src/io/graph_json.cc", "#include <pybind11/pybind11.h>"),
            ("src/io/graph_json.cc", "#include <CLI/CLI.hpp>"),
            ("src/io/graph_json.cc", "#include <unistd.h>"),
            ("src/report/report.cc", '#include "runtime/program/program.h"'),
        ])

    def test_tools_and_bindings_know_public_headers(self):
        self.accepts([
            ("tools/main.cc", "#include <CLI/CLI.hpp>"),
            ("tools/main.cc", "#include <nlohmann/json.hpp>"),
            ("tools/main.cc", "#include <unistd.h>"),
            ("tools/main.cc", '#include "args.h"'),
            ("tools/main.cc", '#include "reprise/solve.h"'),
            ("python/bindings/core_plan.cc", "#include <pybind11/pybind11.h>"),
            ("python/bindings/core_plan.cc", '#include "core.h"'),
            ("python/bindings/core_plan.cc", '#include "reprise/solve.h"'),
            ("python/bindings/torch.cc", "#include <torch/extension.h>"),
            ("python/bindings/torch.cc", '#include "runtime/program/program.h"'),
            ("python/bindings/torch.cc", '#include "reprise/torch/training_step.h"'),
        ])
        self.refuses([
            ("tools/main.cc", '#include "papers/lower_sets.h"'),
            ("tools/main.cc", '#include "reprise/torch/training_step.h"'),
            ("tools/main.cc", '#include "runtime/program/program.h"'),
            ("python/bindings/core_plan.cc", "#include <torch/extension.h>"),
            ("python/bindings/core_plan.cc", '#include "runtime/program/program.h"'),
            ("python/bindings/torch.cc", '#include "papers/lower_sets.h"'),
        ])

    def test_the_runtime_knows_what_is_below(self):
        self.accepts([
            ("runtime/engine/executor.cc", "#include <ATen/ATen.h>"),
            ("runtime/engine/executor.cc", "#include <chrono>"),
            ("runtime/engine/executor.cc", '#include "reprise/plan.h"'),
            ("runtime/engine/executor.cc", '#include "runtime/messages.h"'),
            ("runtime/engine/executor.cc", '#include "runtime/program/program.h"'),
            ("runtime/engine/executor.cc", '#include "reprise/torch/errors.h"'),
            ("runtime/program/passes/in_place.cc", '#include "runtime/program/program.h"'),
            ("runtime/files/program_reader.cc", '#include "io/json_reader.h"'),
            ("runtime/session/training_step.cc", '#include "reprise/torch/training_step.h"'),
            ("include/reprise/torch/training_step.h", "#include <ATen/core/Tensor.h>"),
            ("include/reprise/torch/training_step.h", '#include "reprise/torch/errors.h"'),
            ("include/reprise/torch.h", '#include "reprise/torch/training_step.h"'),
        ])
        self.refuses([
            ("runtime/other/new.cc", ""),
            ("runtime/device/meter.cc", '#include "runtime/program/program.h"'),
            ("runtime/program/passes/in_place.cc", '#include "runtime/session/session.h"'),
            ("runtime/engine/executor.cc", '#include "runtime/session/session.h"'),
            ("runtime/engine/executor.cc", '#include "reprise/torch/training_step.h"'),
            ("runtime/session/session.cc", '#include "reprise/torch.h"'),
            ("runtime/session/session.cc", '#include "session.h"'),
            ("runtime/engine/executor.cc", '#include "runtime/program/missing.h"'),
            ("runtime/engine/executor.cc", '#include "papers/lower_sets.h"'),
            ("runtime/engine/executor.cc", "#include <nlohmann/json.hpp>"),
            ("runtime/engine/executor.cc", "#include <pybind11/pybind11.h>"),
            ("include/reprise/torch/training_step.h", "#include <torch/torch.h>"),
            ("include/reprise/torch/training_step.h", '#include "runtime/program/program.h"'),
            ("include/reprise/torch/new.h", ""),
            ("include/reprise/torch.h", "#include <ATen/ATen.h>"),
        ])

    def test_python_imports_what_is_below(self):
        self.accepts([
            ("python/reprise/__init__.py", "from .api.plan import Plan"),
            ("python/reprise/__main__.py", "from .api import plan"),
            ("python/reprise/planning.py", "from . import _core, errors"),
            ("python/reprise/show/curve.py", "from ..errors import RepriseError\nfrom . import report"),
            ("python/reprise/trace/capture.py", "from reprise.show import report\nimport torch"),
            ("python/reprise/api/model.py", "from ..trace import nodes\nfrom .plan import Plan"),
        ])
        self.refuses([
            ("python/reprise/other/new.py", ""),
            ("python/reprise/planning.py", "from .api import plan"),
            ("python/reprise/planning.py", "from . import api"),
            ("python/reprise/planning.py", "from .trace.nodes import check"),
            ("python/reprise/show/curve.py", "def f():\n    from ..trace import nodes"),
            ("python/reprise/show/curve.py", "from .. import compile"),
            ("python/reprise/trace/capture.py", "import reprise.api.plan"),
            ("python/reprise/trace/capture.py", "from reprise.api.plan import Plan"),
            ("python/reprise/trace/capture.py", "import reprise"),
        ])

    def test_one_module_imports_inductor(self):
        self.accepts([
            ("python/reprise/trace/fused/internals.py", "from torch._inductor import config"),
            ("python/reprise/trace/capture.py", "import torch._inductors"),
            ("python/reprise/trace/capture.py", '"""Written for torch._inductor alone."""'),
            ("python/reprise/trace/capture.py", "from . import _inductor"),
        ])
        self.refuses([
            ("python/reprise/trace/capture.py", "import torch._inductor.config as config"),
            ("python/reprise/trace/capture.py", "def f():\n    from torch._inductor.graph import GraphLowering"),
            ("python/reprise/trace/capture.py", "from torch import _inductor"),
            ("python/reprise/api/plan.py", "torch._inductor.config.patch()"),
            ("python/reprise/api/plan.py", 'sys.modules.get("torch._inductor.graph")'),
        ])

    def test_no_import_leads_back(self):
        there = {"python/reprise/show/a.py": "from .b import x", "python/reprise/show/b.py": "from . import c"}
        self.assertEqual(self.errors(there | {"python/reprise/show/c.py": "from ..errors import y"}), [])
        self.assertEqual(self.errors(there | {"python/reprise/show/c.py": "from .a import z"}),
                         ["circle: show.a -> show.b -> show.c -> show.a"])


class SizesTest(unittest.TestCase):
    def errors(self, files: dict[str, int]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            return sizes.check(tree(folder, {name: "\n" * lines for name, lines in files.items()}))[1]

    def test_accepts_files_at_their_limits(self):
        self.assertEqual(self.errors({"src/graph/a.cc": 500, "tests/unit/a_test.cc": 800, "tools/main.cc": 100}), [])

    def test_refuses_a_file_over_its_limit(self):
        for name, limit in [("src/graph/a.cc", 500), ("include/reprise/torch/a.h", 500), ("models/a.py", 500),
                            ("tests/unit/a_test.cc", 800)]:
            self.assertEqual(self.errors({name: limit + 1}), [f"{name}: {limit + 1} lines, the limit is {limit}"])

    def test_refuses_a_tree_without_files(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(sizes.check(Path(folder))[1], ["no files found"])


if __name__ == "__main__":
    unittest.main()
