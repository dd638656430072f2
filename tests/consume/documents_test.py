#!/usr/bin/env python3
"""The documents show what is there: README code stands in the examples, links lead to files."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("data/**/*.md")])
CPP_BLOCK = re.compile(r"^```cpp\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)  # a lambda in it looks like a link
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


class DocumentsTest(unittest.TestCase):
    def test_readme_code_stands_in_an_example(self) -> None:
        examples = [path.read_text() for path in ROOT.glob("examples/*.cc")]
        blocks = CPP_BLOCK.findall((ROOT / "README.md").read_text())
        self.assertTrue(blocks)
        for block in blocks:
            self.assertTrue(any(block in example for example in examples), f"in no example:\n{block}")

    def test_links_lead_to_files(self) -> None:
        for document in DOCUMENTS:
            for target in LINK.findall(BLOCK.sub("", document.read_text())):
                self.assertTrue((document.parent / target).exists(), f"{document.relative_to(ROOT)}: {target}")


if __name__ == "__main__":
    unittest.main()
