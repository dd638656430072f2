"""clang-tidy over our own sources, skipping files that passed before.

A file is analysed again when it, a header of ours that it includes, its compile command,
.clang-tidy or this script changes: .cache/clang-tidy holds one empty file per clean result.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "clang-tidy"
FOLDERS = ("src", "tools", "runtime", "python")
INCLUDE_DIRS = (".", "include", "src", "tools")
# Files that see headers of torch are left out: clang 14 takes minutes for each and cannot compile all of them.
# What they hold stays small, and the compiler's warnings and the tests cover it.
TORCH = re.compile(r'^\s*#\s*include\s+[<"](?:torch|ATen|c10)/', re.MULTILINE)
TIDY = "clang-tidy-14"


def included(path: Path, seen: set[Path]) -> set[Path]:
    """`path` and the headers of ours that it includes, all the way down."""
    if path in seen:
        return seen
    seen.add(path)
    for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE):
        for folder in (path.parent, *(ROOT / d for d in INCLUDE_DIRS)):
            if (folder / name).exists():
                included((folder / name).resolve(), seen)
                break
    return seen


def sees_torch(path: Path) -> bool:
    return any(TORCH.search(file.read_text()) for file in included(path, set()))


def key(entry: dict) -> str:
    digest = hashlib.sha256(entry["command"].encode())
    for path in [ROOT / ".clang-tidy", Path(__file__), *sorted(included(Path(entry["file"]), set()))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def analyse(entry: dict, build_dir: str) -> tuple[str, str]:
    """The file's name and what clang-tidy found in it, "" if nothing."""
    name = str(Path(entry["file"]).relative_to(ROOT))
    stamp = CACHE / key(entry)
    if stamp.exists():
        return name, ""
    run = subprocess.run([TIDY, "-p", build_dir, "--quiet", entry["file"]], capture_output=True, text=True, check=False)
    if run.returncode == 0:
        stamp.touch()
        return name, ""
    return name, run.stdout + run.stderr


def finds_what_is_bad() -> bool:
    """Whether a bad name is an error: clang-tidy goes on without a configuration that it cannot parse."""
    bad = CACHE / "bad.cc"
    bad.write_text("int BadName() { return 0; }\n")
    run = subprocess.run([TIDY, f"--config-file={ROOT / '.clang-tidy'}", str(bad), "--"], capture_output=True, text=True,
                         check=False)
    return run.returncode != 0 and "readability-identifier-naming" in run.stdout


def main() -> int:
    build_dir = sys.argv[1]
    CACHE.mkdir(parents=True, exist_ok=True)
    if not finds_what_is_bad():
        print("clang-tidy: a bad name is not found; is .clang-tidy in order?", file=sys.stderr)
        return 1
    entries = json.loads((ROOT / build_dir / "compile_commands.json").read_text())
    ours = [e for e in entries if Path(e["file"]).is_relative_to(ROOT)
            and Path(e["file"]).relative_to(ROOT).parts[0] in FOLDERS
            and not sees_torch(Path(e["file"]))]
    if not ours:
        print("clang-tidy: no sources found", file=sys.stderr)
        return 1
    bad = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, findings in pool.map(lambda e: analyse(e, build_dir), ours):
            if findings:
                bad += 1
                print(f"{name}:\n{findings}", file=sys.stderr)
    print(f"clang-tidy: {len(ours)} files, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
