"""Takes the README's pictures of the top of a report, one in light and one in dark colours.

    scripts/python.sh scripts/documents/picture.py [out/resnet50.html] [-o docs/pictures]

By default, the report is the page that `make demo` writes. Needs chromium.
"""

from __future__ import annotations

import argparse
import base64
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "python"))

from browser import PROGRAM, Browser  # noqa: E402

WIDTH = 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", nargs="?", type=Path, default=ROOT / "out" / "resnet50.html")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "pictures", metavar="FOLDER")
    options = parser.parse_args()
    if not options.page.exists():
        parser.error(f"there is no {options.page}: run make demo first, or name a page")
    if PROGRAM is None:
        parser.error("there is no chromium")
    options.output.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        for name in ("light", "dark"):
            browser.open(options.page, width=WIDTH, height=800, dark=name == "dark")
            begin, end = browser.value("[document.querySelector('main').offsetTop, "
                                       "document.getElementById('front').getBoundingClientRect().bottom]")
            image = browser.call("Page.captureScreenshot", captureBeyondViewport=True, clip={
                "x": 0, "y": begin, "width": WIDTH, "height": end - begin + 16, "scale": 1.25})
            path = options.output / f"report-{name}.png"
            path.write_bytes(base64.b64decode(image["data"]))
            print(path)
    return 1 if browser.errors else 0


if __name__ == "__main__":
    sys.exit(main())
