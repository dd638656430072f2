"""clang-tidy over our own sources, skipping folders that passed before.

The sources of a folder are put into one file, so that the headers they share are read once: a third of the time.
(A file that only includes them is not enough: the analyzer skips functions of included files.)
A folder is analysed again when one of its files, a header of ours that they include, a compile command, .clang-tidy
or this script changes: .cache/clang-tidy holds one empty file per clean result.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
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


def flags(entry: dict) -> tuple[str, ...]:
    """What the compiler is told about every file of the folder: not the file, nor where its object goes."""
    words = shlex.split(entry["command"])
    words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
    named = {i + 1 for i, word in enumerate(words) if word in ("-o", "-MF", "-MT")}
    return tuple(word for i, word in enumerate(words)
                 if i not in named and i + 1 not in named and word not in ("-c", "-MD", entry["file"]))


def key(arguments: tuple[str, ...], files: list[Path]) -> str:
    digest = hashlib.sha256("\n".join(arguments).encode())
    seen: set[Path] = {ROOT / ".clang-tidy", Path(__file__)}
    for path in files:
        included(path, seen)
    for path in sorted(seen):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def analyse(files: list[Path], arguments: tuple[str, ...]) -> str:
    """What clang-tidy found in the files of a folder, "" if nothing."""
    stamp = CACHE / key(arguments, files)
    if stamp.exists():
        return ""
    together = stamp.with_suffix(".cc")
    together.write_text("".join(file.read_text() for file in files))
    run = subprocess.run([TIDY, f"--config-file={ROOT / '.clang-tidy'}", "--quiet", str(together), "--",
                          *arguments, f"-I{files[0].parent}"], capture_output=True, text=True, check=False)
    if run.returncode == 0:
        stamp.touch()
    together.unlink()
    return "" if run.returncode == 0 else _with_places(run.stdout + run.stderr, together, files)


def _with_places(findings: str, together: Path, files: list[Path]) -> str:
    """The findings with the line numbers of the files themselves."""
    lines = [f"{file.relative_to(ROOT)}:{number}" for file in files
             for number in range(1, len(file.read_text().splitlines()) + 1)]
    return re.sub(re.escape(str(together)) + r":(\d+)", lambda found: lines[int(found[1]) - 1], findings)


# A finding of a check that matches text and one of the analyzer, which has to follow a path.
BAD = """int BadName() { return 0; }
int through_null(bool never) {
  const int* where = never ? new int(1) : nullptr;
  return *where;
}
"""
BAD_FINDINGS = ("1:5: error: invalid case style for function", "4:10: error: Dereference of null pointer")


def finds_what_is_bad() -> bool:
    """Whether known faults are found in the right place: clang-tidy continues without a configuration that it cannot parse."""
    good, bad = CACHE / "good.cc", CACHE / "bad.cc"
    good.write_text("int good_name();\n")
    bad.write_text(BAD)
    found = analyse([good, bad], ("-std=c++20",))
    return all(f"{bad.relative_to(ROOT)}:{finding}" in found for finding in BAD_FINDINGS) and "good.cc" not in found


def main() -> int:
    build_dir = sys.argv[1]
    CACHE.mkdir(parents=True, exist_ok=True)
    if not finds_what_is_bad():
        print("clang-tidy: what is wrong on purpose is not found; is .clang-tidy in order?", file=sys.stderr)
        return 1
    folders: dict[tuple[str, tuple[str, ...]], list[Path]] = defaultdict(list)
    for entry in json.loads((ROOT / build_dir / "compile_commands.json").read_text()):
        file = Path(entry["file"])
        if file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in FOLDERS and not sees_torch(file):
            folders[str(file.parent.relative_to(ROOT)), flags(entry)].append(file)
    if not folders:
        print("clang-tidy: no sources found", file=sys.stderr)
        return 1
    bad = 0
    work = sorted(folders.items(), key=lambda item: -sum(file.stat().st_size for file in item[1]))  # the longest first
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda item: analyse(item[1], item[0][1]), work)
        for ((name, _), _), findings in zip(work, found, strict=True):
            if findings:
                bad += 1
                print(f"{name}:\n{findings}", file=sys.stderr)
    print(f"clang-tidy: {sum(map(len, folders.values()))} files in {len(folders)} folders, {bad} with findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
