"""Prints lines per folder and fails over a limit.

Raising a limit is a one-line change with a reason. Lines of comments count: the aim is
less to read.
"""

import sys
from pathlib import Path

FILE_LIMIT = 500
TEST_FILE_LIMIT = 800
# Row, the folders it sums, and the budget in lines (None: shown only).
FOLDERS = [
    ("core", ("include", "src"), 11500),  # ten planners, each explained in its file; `auto` alone is a dozen techniques
    ("tools", ("tools",), 1100),  # six commands, each with help, a table and a JSON form
    ("runtime", ("runtime", "include/reprise/torch"), 6800),  # executor, profile, convolutions in two calls; for C++: recorder and training steps, these as CUDA graphs, checkpoints, a planner of chains, program files
    ("python", ("python",), 6400),  # bindings of two modules and their stub, the front end, the way of eager in tracing, CUDA graphs, reports, preflight, export
    ("scripts", ("scripts", "cmake"), 1950),  # a script per document that is generated
    ("tests", ("tests",), None),
    ("bench", ("bench",), None),
    ("examples", ("examples",), None),
    ("data", ("data",), None),
]
SUFFIXES = {".h", ".cc", ".py", ".sh", ".cmake"}


def sources(root: Path, folders: tuple[str, ...], taken: set[Path]) -> list[Path]:
    found = [path for folder in folders for path in sorted((root / folder).rglob("*"))
             if path.suffix in SUFFIXES and path.is_file() and path not in taken]
    taken.update(found)
    return found


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def check(root: Path) -> tuple[list[str], list[str]]:
    """Rows of the table, and what is over a limit."""
    rows, errors = [f"{'folder':<9}{'files':>6}{'lines':>7}{'budget':>8}  longest file"], []
    taken: set[Path] = set()
    # torch's public headers lie inside the core's include folder: its row claims them first.
    claims = {name: sources(root, folders, taken) for name, folders, _ in
              sorted(FOLDERS, key=lambda row: row[0] != "runtime")}
    for name, _, budget in FOLDERS:
        sizes = {path: lines(path) for path in claims[name]}
        if not sizes:
            continue
        total, longest = sum(sizes.values()), max(sizes, key=sizes.__getitem__)
        rows.append(f"{name:<9}{len(sizes):>6}{total:>7}{budget or '':>8}  "
                    f"{longest.relative_to(root)} {sizes[longest]}")
        if budget and total > budget:
            errors.append(f"{name}: {total} lines, the budget is {budget}")
        limit = TEST_FILE_LIMIT if name == "tests" else FILE_LIMIT
        errors += [f"{path.relative_to(root)}: {size} lines, the limit is {limit}"
                   for path, size in sizes.items() if size > limit]
    return rows, errors


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    rows, errors = check(root)
    print(*rows, sep="\n")
    print(*errors, sep="\n", end="\n" if errors else "", file=sys.stderr)
    return 1 if errors or len(rows) == 1 else 0


if __name__ == "__main__":
    sys.exit(main())
