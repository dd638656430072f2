"""Runs the benchmarks of build/release and writes bench/results/NAME.json.

    python3 scripts/bench.py [NAME] [argument of reprise_bench]...

If NAME is not given, it is the machine's architecture. The file also says what was measured on:
processor, system, compiler, build type, version and commit.
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
# Entries of Google Benchmark's output that are left out: the machine's name, paths, and how that library was built.
PRIVATE = ("host_name", "executable", "library_build_type")


def cache_entry(name: str) -> str:
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split("=", 1)[1]
    return ""


def first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else "unknown"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def facts() -> dict[str, str]:
    return {
        "architecture": platform.machine(),
        "processor": processor(),
        "processors": str(os.cpu_count()),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "compiler": first_line(cache_entry("CMAKE_CXX_COMPILER"), "--version"),
        "build_type": cache_entry("CMAKE_BUILD_TYPE"),
        "version": cache_entry("CMAKE_PROJECT_VERSION"),
        "commit": first_line("git", "describe", "--always", "--dirty"),
    }


def main() -> int:
    arguments = sys.argv[1:]
    name = arguments.pop(0) if arguments and not arguments[0].startswith("-") else platform.machine()
    binary = BUILD / "bench" / "reprise_bench"
    if not binary.exists():
        print(f"{binary.relative_to(ROOT)} is missing: make build, with Google Benchmark installed", file=sys.stderr)
        return 1
    out = ROOT / "bench" / "results" / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    raw = BUILD / "bench" / "raw.json"
    subprocess.run([binary, f"--benchmark_out={raw}", "--benchmark_out_format=json", *arguments], check=True)

    result = json.loads(raw.read_text())
    context = {key: value for key, value in result["context"].items() if key not in PRIVATE}
    result["context"] = facts() | context
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {out.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
