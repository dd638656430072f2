#!/usr/bin/env python3
"""Writes the forward graphs of seven networks from their layer descriptions.

    python3 data/papers/generate.py            write data/papers/*.graph.json
    python3 data/papers/generate.py --check    exit 1 if a file differs from what would be written
"""

import argparse
import json
import sys
from pathlib import Path

from net import Net, Op
from networks import NETWORKS

FOLDER = Path(__file__).resolve().parent


def compact(data: object) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def op_line(op: Op, output: int) -> str:
    fields: dict[str, object] = {"name": op.name}
    if op.scope is not None:
        fields["scope"] = op.scope
    fields["time_ns"] = op.time
    if op.backward_reads != "inputs":
        fields["backward_reads"] = op.backward_reads
    if op.inputs:
        fields["inputs"] = op.inputs
    fields["outputs"] = [output]
    return compact(fields)


def graph_text(net: Net) -> str:
    """The file as docs/formats.md describes it, without the fields that have their default values."""
    ops = ",\n".join(op_line(op, output) for output, op in enumerate(net.ops))
    return f"""{{
"format":"reprise.graph","version":1,
"name":{compact(net.name)},
"scopes":{compact(net.scopes)},
"values":{{
"bytes":{compact([op.output_bytes for op in net.ops])},
"resident":[],
"arriving":[],
"held":[],
"overwrites":[]}},
"outputs":[],
"ops":[
{ops}
]
}}
"""


def is_current(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the files instead of writing them")
    check = parser.parse_args().check
    stale = 0
    for stem, network in NETWORKS.items():
        path = FOLDER / f"{stem}.graph.json"
        text = graph_text(network())
        if not check:
            path.write_bytes(text.encode())
        elif not is_current(path, text):
            print(f"{path.name} is not what generate.py would write", file=sys.stderr)
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
