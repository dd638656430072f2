"""Tests the command `reprise` with the cases in the tables beside this file.

    python3 tests/cli/cli_test.py build/release/tools/reprise [table.json]... [-k NAME]

A table is a list of cases. Each runs in an empty folder of its own:

    {"name": "says what is wrong",            what the case states
     "files": {"g.json": "{}"},               files that are written first; a list is joined by newlines
     "before": [["convert", "g.json"]],       commands that run first and must succeed
     "args": ["plan", "g.json"],              {root} in an argument is the root of the sources
     "stdin": "",
     "exit": 3,                               the expected exit status, 0 if not given
     "stdout": "all of it",                   or "stdout_has": [parts of it]
     "stderr": "",                            or "stderr_has": [parts of it]
     "json": {"peak_bytes": 222},             stdout is JSON with at least these keys and values
     "creates": {"plan.json": ["parts"]}}     files that exist afterwards, and parts of their text
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEYS = {"name", "files", "before", "args", "stdin", "exit", "stdout", "stdout_has", "stderr", "stderr_has", "json",
        "creates"}
TIMEOUT_S = 300


def text_of(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "\n".join(value) + "\n"


def run(reprise: Path, args: list[str], folder: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(reprise), *(arg.replace("{root}", str(ROOT)) for arg in args)]
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S,
                          check=False)


def subset_errors(expected: Any, found: Any, place: str) -> list[str]:
    """The differences between `found` and `expected`. Keys that only `found` has are not differences."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [error for key, value in expected.items()
                for error in (subset_errors(value, found[key], f"{place}.{key}") if key in found
                              else [f"{place}.{key} is not there"])]
    return [] if expected == found else [f"{place} is {found!r}, not {expected!r}"]


def stream_errors(case: dict, name: str, text: str) -> list[str]:
    errors = [f"{name} lacks {part!r}" for part in case.get(f"{name}_has", []) if part not in text]
    if name in case and text_of(case[name]) != text:
        errors.append(f"{name} is not {text_of(case[name])!r}")
    return errors


def file_errors(creates: dict[str, list[str]], folder: Path) -> list[str]:
    errors = []
    for file, parts in creates.items():
        if not (folder / file).exists():
            errors.append(f"{file} was not written")
            continue
        text = (folder / file).read_text()
        errors += [f"{file} lacks {part!r}" for part in parts if part not in text]
    return errors


def case_errors(case: dict, reprise: Path, folder: Path) -> list[str]:
    unknown = case.keys() - KEYS
    if unknown or "args" not in case:
        return [f"bad case: {', '.join(sorted(unknown)) or 'no args'}"]
    for file, text in case.get("files", {}).items():
        (folder / file).write_text(text_of(text))
    for args in case.get("before", []):
        done = run(reprise, args, folder)
        if done.returncode != 0:
            return [f"before: {' '.join(args)} ended with {done.returncode}: {done.stderr}"]

    done = run(reprise, case["args"], folder, text_of(case.get("stdin", "")))
    errors = stream_errors(case, "stdout", done.stdout) + stream_errors(case, "stderr", done.stderr)
    if done.returncode != case.get("exit", 0):
        errors.append(f"exit status is {done.returncode}, not {case.get('exit', 0)}")
    if "json" in case:
        try:
            errors += subset_errors(case["json"], json.loads(done.stdout), "stdout")
        except json.JSONDecodeError as error:
            errors.append(f"stdout is not JSON: {error}")
    errors += file_errors(case.get("creates", {}), folder)
    if errors:
        errors.append(f"args: {case['args']}\nstdout: {done.stdout[:2000]}\nstderr: {done.stderr[:2000]}")
    return errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reprise", type=lambda p: Path(p).resolve())
    parser.add_argument("tables", nargs="*", type=Path, default=sorted(HERE.glob("*.json")))
    parser.add_argument("-k", dest="only", default="", help="run the cases with this in their name")
    options = parser.parse_args()

    count = failed = 0
    for table in options.tables:
        for case in json.loads(table.read_text()):
            name = f"{table.stem}: {case['name']}"
            if options.only not in name:
                continue
            count += 1
            with tempfile.TemporaryDirectory() as folder:
                try:
                    errors = case_errors(case, options.reprise, Path(folder))
                except subprocess.TimeoutExpired:
                    errors = [f"did not end within {TIMEOUT_S} s"]
            if errors:
                failed += 1
                print(f"FAILED {name}", *errors, sep="\n  ")
    print(f"{count} cases, {failed} failed")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
