"""What plans made at one size are worth at other sizes, beside a whole search at each (include/reprise/plan_family.h).

    make build && scripts/python.sh bench/family.py [--steps NAME,...] [--out FOLDER]

Each network is captured at several sizes of its batch as `data/steps/capture.py --device none` captures it: structure and
bytes are those of the CPU's operators, times are those of a roofline, workspaces are none, and nothing runs. So bytes at each
size are exact, and times change from size to size as a roofline does, not as a device. Captures go to a folder and are not made
again. `family_of_sizes` (bench/family.cc) then plans at the first size of a row and looks at the others. A form that a network
has only at some sizes would be another family: the command fails if structures differ. The work of all searches is a count, so
the plans are the same on every machine; milliseconds, which are those of the processor, are not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "data" / "steps")]

from models.zoo import labelled_tokens, square  # noqa: E402

SAMPLES = {"gpt2_medium_8x1024": partial(labelled_tokens, 50257), "bert_large_32x512": partial(labelled_tokens, 30522),
           "resnet50_96": square, "unet_8x572": partial(square, channels=1)}
# Batch x length of a text or side of a picture: where the plans are made, and where they are used.
SIZES: dict[str, list[tuple[tuple[int, int], list[tuple[int, int]]]]] = {
    "gpt2_medium_8x1024": [((8, 1024), [(8, 512), (8, 256), (3, 700)]), ((8, 256), [(8, 1024)])],
    "bert_large_32x512": [((32, 512), [(32, 128), (12, 384)])],
    "resnet50_96": [((96, 224), [(96, 160), (64, 256), (96, 200)]), ((96, 160), [(96, 224)])],
    "unet_8x572": [((8, 572), [(3, 572), (8, 444)])],
}


def capture_one(name: str, size: tuple[int, int], path: Path) -> None:
    import capture  # of data/steps
    import torch

    from reprise import _core

    torch.manual_seed(0)
    step = capture.STEPS[name]
    batch, length = size
    step = replace(step, case=replace(step.case, batch=batch, sample=SAMPLES[name](length)))
    program = capture.captured(step, capture.NONE, tiny=False).captured.program
    path.write_text(_core.format_graph(_core.Graph.from_capsule(program.graph()), capture.estimated(program)))


def captured(name: str, size: tuple[int, int], folder: Path) -> Path:
    """The file of a step at a size; each is captured in a process of its own."""
    path = folder / f"{name.split('_')[0]}.{size[0]}x{size[1]}.graph.json"
    if not path.exists():
        one = [name, *map(str, size), str(path)]
        subprocess.run([sys.executable, __file__, "--one", *one], check=True, env=os.environ)
    return path


def compared(command: Path, name: str, made_at: tuple[int, int], used_at: list[tuple[int, int]], folder: Path) -> dict:
    files = [captured(name, size, folder) for size in (made_at, *used_at)]
    done = subprocess.run([command, *files], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"{command} exited with {done.returncode}")
    found: dict = json.loads(done.stdout)
    found["reference"] = f"{made_at[0]} x {made_at[1]}"
    for size, row in zip(used_at, found["sizes"], strict=True):
        row["size"] = f"{size[0]} x {size[1]}"
        del row["file"]
    return found | {"step": name}


def lost(row: dict, time_ns: int | None) -> float | None:
    """How much longer the step takes than with the plan of `auto`, in percent."""
    return None if time_ns is None or row["auto"] is None else round(100 * (time_ns - row["auto"]) / row["auto"], 3)


def summary(families: list[dict]) -> dict:
    rows = [row for family in families for size in family["sizes"] for row in size["rows"] if row["auto"] is not None]
    found: dict = {"questions": len(rows)}
    for low, chosen in ((True, [row for row in rows if row["share"] < 30]),
                        (False, [row for row in rows if row["share"] >= 30])):
        losses = {f"fastest_of_{most}": [lost(row, row["fastest_of"][most]) for row in chosen]
                  for most in rows[0]["fastest_of"]}
        losses["adapted"] = [lost(row, row["adapted"]) for row in chosen]
        found["below_30_percent" if low else "from_30_percent"] = {
            way: {"answers": len(known), "median_lost_percent": round(statistics.median(known), 3),
                  "most_lost_percent": round(max(known), 2)}
            for way, every in losses.items() if (known := [loss for loss in every if loss is not None])}
    for way in ("fastest_ms", "adapted_ms", "is_far_ms", "auto_ms"):
        times = [row[way] for row in rows if way in row]
        found[way] = {"median": round(statistics.median(times), 2), "most": round(max(times), 2)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "bench" / "family_of_sizes")
    parser.add_argument("--steps", default=",".join(SIZES), help=f"of {', '.join(SIZES)}")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "family", help="a folder for the captured steps")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "family.json")
    parser.add_argument("--one", nargs=4, metavar=("STEP", "BATCH", "LENGTH", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, batch, length, path = options.one
        return capture_one(name, (int(batch), int(length)), Path(path))
    options.out.mkdir(parents=True, exist_ok=True)
    result: dict = {"command": "scripts/python.sh bench/family.py", "machine": platform.machine(),
                    "cores": os.cpu_count(), "families": []}
    for name in options.steps.split(","):
        for made_at, used_at in SIZES[name]:
            found = compared(options.command, name, made_at, used_at, options.out)
            result["families"].append(found)
            for size in found["sizes"]:
                print(f"{name} {found['reference']} > {size['size']}: " + "  ".join(
                    f"{row['share']} %: {lost(row, row['fastest'])}, {lost(row, row['adapted'])}" for row in size["rows"]),
                    flush=True)
            result["summary"] = summary(result["families"])
            options.output.write_text(json.dumps(result, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
