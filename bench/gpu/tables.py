"""Writes the pages and pictures of the comparisons on a GPU from the rows in bench/results.

    python3 bench/gpu/tables.py [rivals kusumoto batches largest hong budgets host-memory readme] [--results FOLDER] [-o docs]

Without names, it writes all of them. It needs neither torch nor a GPU. Each page is written from its folder of rows; if a
folder has no rows, its page is not written and the command fails. `readme` writes the lines of README.md between two marks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from pages import batches, budgets, hong, host_memory, kusumoto, largest, readme, rivals
from pages.shared import CannotWrite, Places

ROOT = Path(__file__).resolve().parents[2]
PAGES: dict[str, Callable[[Places], None]] = {
    "rivals": rivals.page, "kusumoto": kusumoto.page, "batches": batches.page, "largest": largest.page, "hong": hong.page,
    "budgets": budgets.page, "host-memory": host_memory.page, "readme": readme.page}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"one of {', '.join(PAGES)}; by default all of them")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="the file to write `readme` into")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    for name in set(options.pages) - set(PAGES):
        parser.error(f"there is no page '{name}': choose of {', '.join(PAGES)}")
    failed = False
    for name in options.pages or PAGES:
        try:
            PAGES[name](Places(options.results, options.output, options.readme))
        except CannotWrite as error:
            failed = True
            print(f"{name}: {error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
