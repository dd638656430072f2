#!/usr/bin/env python3
"""Compares the graphs of data/papers with what is known about the graphs that the paper was measured on.

    python3 tests/golden/papers_graphs_test.py

It reads the JSON files without the library and counts everything in them, except the parameters, which no file contains.
"""

import json
import subprocess
import sys
import unittest
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "data" / "papers"
GENERATE = FOLDER / "generate.py"

# The name of an op begins with its kind, and no kind is the beginning of another one.
KINDS = ["conv", "deconv", "linear", "bn", "relu", "max_pool", "avg_pool", "lrn", "dropout", "add", "mul_const", "concat",
         "crop", "resize", "reshape", "softmax_ce"]
BACKWARD_READS = {"relu": "outputs", "max_pool": "both", "avg_pool": "both", "lrn": "both"}


@dataclass(frozen=True)
class Known:
    nodes: int
    edges: int
    time: int
    lower_sets: int
    value_bytes: int
    parameter_bytes: int
    kinds: dict[str, int]


HEAD = {"max_pool": 1, "avg_pool": 1, "reshape": 1, "linear": 1, "softmax_ce": 1}

KNOWN = {
    "vgg19": Known(
        46, 45, 190, 47, 4_004_508_676, 574_668_960,
        {"relu": 18, "conv": 16, "max_pool": 5, "linear": 3, "dropout": 2, "reshape": 1, "softmax_ce": 1},
    ),
    "resnet50": Known(
        176, 191, 653, 241, 4_605_604_868, 102_228_384,
        {"conv": 53, "bn": 53, "relu": 49, "add": 16, **HEAD},
    ),
    "resnet152": Known(
        516, 565, 1911, 581, 9_974_838_276, 240_771_488,
        {"conv": 155, "bn": 155, "relu": 151, "add": 50, **HEAD},
    ),
    "densenet161": Known(
        568, 645, 2008, 569, 11_661_796_356, 114_724_000,
        {"bn": 161, "relu": 161, "conv": 160, "concat": 78, **HEAD, "avg_pool": 4},
    ),
    "googlenet": Known(
        134, 162, 665, 27_358, 1_273_252_884, 53_513_120,
        {"conv": 59, "relu": 34, "max_pool": 13, "concat": 9, "linear": 5, "avg_pool": 3, "reshape": 3,
         "softmax_ce": 3, "lrn": 2, "add": 2, "dropout": 1},
    ),
    "unet": Known(
        60, 63, 231, 331, 11_781_604_356, 124_401_416,
        {"relu": 22, "conv": 19, "max_pool": 4, "deconv": 4, "crop": 4, "concat": 4, "dropout": 2, "softmax_ce": 1},
    ),
    "pspnet": Known(
        385, 422, 1411, 12_533, 7_343_443_000, 282_017_672,
        {"conv": 114, "bn": 112, "relu": 108, "add": 34, "resize": 6, "avg_pool": 4, "dropout": 2,
         "softmax_ce": 2, "max_pool": 1, "concat": 1, "mul_const": 1},
    ),
}  # fmt: skip


def load(stem: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{stem}.graph.json").read_text(encoding="utf-8"))


def inputs(op: dict[str, Any]) -> list[int]:
    return op.get("inputs", [])


def kind(op: dict[str, Any]) -> str:
    return next(kind for kind in KINDS if op["name"].startswith(kind))


def lower_set_count(ops: list[dict[str, Any]]) -> int:
    """The number of sets of ops that are closed under predecessors. They are grown from the empty set, one op at a time."""
    needs = [sum(1 << value for value in inputs(op)) for op in ops]
    users: list[list[int]] = [[] for _ in ops]
    for user, op in enumerate(ops):
        for value in inputs(op):
            users[value].append(user)
    sources = frozenset(op for op, need in enumerate(needs) if need == 0)
    level = {0: sources}  # lower set -> the ops that can be added to it
    count = 0
    while level:
        count += len(level)
        larger: dict[int, frozenset[int]] = {}
        for lower_set, ready in level.items():
            for op in ready:
                grown = lower_set | 1 << op
                if grown not in larger:
                    larger[grown] = ready - {op} | {user for user in users[op] if not needs[user] & ~grown}
        level = larger
    return count


class PapersGraphsTest(unittest.TestCase):
    def test_files_are_what_the_descriptions_give(self) -> None:
        run = subprocess.run([sys.executable, "-B", str(GENERATE), "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_there_is_a_file_for_each_network_and_no_other(self) -> None:
        self.assertEqual({path.name for path in FOLDER.glob("*.json")}, {f"{stem}.graph.json" for stem in KNOWN})

    def test_every_op_makes_one_value_from_earlier_ones(self) -> None:
        for stem in KNOWN:
            graph = load(stem)
            self.assertEqual(len(graph["values"]["bytes"]), len(graph["ops"]), stem)
            for index, op in enumerate(graph["ops"]):
                with self.subTest(network=stem, op=op["name"]):
                    self.assertEqual(op["outputs"], [index])
                    self.assertTrue(all(value < index for value in inputs(op)))
                    self.assertEqual(len(set(inputs(op))), len(inputs(op)))

    def test_the_first_op_alone_reads_the_input_and_the_last_alone_is_read_by_none(self) -> None:
        for stem in KNOWN:
            ops = load(stem)["ops"]
            read = {value for op in ops for value in inputs(op)}
            self.assertEqual([index for index, op in enumerate(ops) if not inputs(op)], [0], stem)
            self.assertEqual(set(range(len(ops))) - read, {len(ops) - 1}, stem)

    def test_scope_and_name_identify_an_op(self) -> None:
        for stem in KNOWN:
            names = Counter((op.get("scope"), op["name"]) for op in load(stem)["ops"])
            self.assertEqual(names.most_common(1)[0][1], 1, names.most_common(1))

    def test_time_and_backward_reads_follow_from_the_kind(self) -> None:
        for stem in KNOWN:
            for op in load(stem)["ops"]:
                with self.subTest(network=stem, op=op["name"]):
                    self.assertEqual(op["time_ns"], 10 if kind(op) == "conv" else 1)
                    self.assertEqual(op.get("backward_reads", "inputs"), BACKWARD_READS.get(kind(op), "inputs"))

    def test_counts_equal_the_known_ones(self) -> None:
        for stem, known in KNOWN.items():
            graph = load(stem)
            ops = graph["ops"]
            with self.subTest(network=stem):
                self.assertEqual(len(ops), known.nodes)
                self.assertEqual(sum(len(inputs(op)) for op in ops), known.edges)
                self.assertEqual(sum(op["time_ns"] for op in ops), known.time)
                self.assertEqual(sum(graph["values"]["bytes"]), known.value_bytes)
                self.assertEqual(Counter(kind(op) for op in ops), known.kinds)

    def test_lower_sets_are_as_many_as_known(self) -> None:
        for stem, known in KNOWN.items():
            with self.subTest(network=stem):
                self.assertEqual(lower_set_count(load(stem)["ops"]), known.lower_sets)

    def test_parameters_of_the_descriptions_are_as_large_as_known(self) -> None:
        sys.path.insert(0, str(FOLDER))
        sys.dont_write_bytecode = True
        from networks import NETWORKS

        for stem, known in KNOWN.items():
            with self.subTest(network=stem):
                self.assertEqual(NETWORKS[stem]().parameter_bytes, known.parameter_bytes)


if __name__ == "__main__":
    unittest.main()
