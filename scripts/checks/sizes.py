"""Prints the number of lines per folder, and fails if a file is longer than its limit.

Whoever raises a limit gives a reason. Lines of comments count too, because the aim is that there is less to read.
"""

import sys
from pathlib import Path

FILE_LIMIT = 500
TEST_FILE_LIMIT = 800
# The rows of the table, each with the folders it sums up. The public headers of the runtime are counted with the core's.
FOLDERS = {"core": ("include", "src"), "tools": ("tools",), "runtime": ("runtime",), "python": ("python",),
           "scripts": ("scripts", "cmake"), "tests": ("tests",), "bench": ("bench",), "models": ("models",),
           "examples": ("examples",), "data": ("data",)}
SUFFIXES = {".h", ".cc", ".py", ".pyi", ".sh", ".cmake"}


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def check(root: Path) -> tuple[list[str], list[str]]:
    """The rows of the table, and an error for each file that is longer than its limit."""
    rows, errors = [f"{'folder':<9}{'files':>6}{'lines':>7}  longest file"], []
    for name, folders in FOLDERS.items():
        files = {path: lines(path) for folder in folders for path in sorted((root / folder).rglob("*"))
                 if path.suffix in SUFFIXES and path.is_file()}
        if not files:
            continue
        longest = max(files, key=files.__getitem__)
        rows.append(f"{name:<9}{len(files):>6}{sum(files.values()):>7}  {longest.relative_to(root)} {files[longest]}")
        limit = TEST_FILE_LIMIT if name == "tests" else FILE_LIMIT
        errors += [f"{path.relative_to(root)}: {size} lines, the limit is {limit}"
                   for path, size in files.items() if size > limit]
    return rows, errors if len(rows) > 1 else ["no files found"]


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    rows, errors = check(root)
    print(*rows, sep="\n")
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
