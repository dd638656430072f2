"""How fast training with sharded parameters is by fixed policies and by `auto` at their peaks, on two steps of data/steps.

    make build && python3 bench/overlap.py

`overlap` (bench/overlap.cc) plans; nothing runs on a device, and times are simulated with the clocks of the device and of its
communicator. The numbers are the same on every machine, because the planner's work is a count; only the seconds of the
processor differ. Fails if `auto` is slower than a policy at its peak, or not much faster than FSDP2 as most people use it.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST_GAIN = {"FSDP2, checkpointed layers": 4.0}  # in percent, where it is not 0
STEPS = ("sharded_llama_64_ranks", "sharded_llama_8_ranks")


def gain(row: dict) -> float:
    """By how much of the policy's time `auto` is faster, in percent."""
    return 100 * (row["fixed"]["time_ns"] - row["auto"]["time_ns"]) / row["fixed"]["time_ns"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", type=Path, default=ROOT / "build" / "release" / "bench" / "overlap")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "bench" / "results" / "overlap.json")
    options = parser.parse_args()
    files = [ROOT / "data" / "steps" / f"{name}.graph.json" for name in STEPS]
    done = subprocess.run([options.command, *files], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"{options.command} exited with {done.returncode}")
    steps = json.loads(done.stdout)
    failed = False
    for step in steps:
        print(f"{step['step']}: {step['neither']['time_ns'] / 1e6:.0f} ms at {step['neither']['peak_bytes'] / 2**30:.1f} GiB")
        for row in step["policies"]:
            fixed, found = row["fixed"], row["auto"]
            faster = gain(row) if "time_ns" in found else float("-inf")
            late = faster < LEAST_GAIN.get(row["policy"], 0.0)
            failed |= late
            print(f"  {row['policy']}: {fixed['peak_bytes'] / 2**30:.1f} GiB, {fixed['time_ns'] / 1e6:.1f} ms; auto "
                  f"{found.get('time_ns', 0) / 1e6:.1f} ms, {faster:.1f} % faster, {found.get('gathers_again', 0)} gathers "
                  f"again, {found['seconds']} s{'   TOO LITTLE' if late else ''}")
    result = {"command": "python3 bench/overlap.py", "machine": platform.machine(), "cores": os.cpu_count(), "steps": steps}
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
