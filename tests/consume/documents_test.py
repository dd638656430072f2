#!/usr/bin/env python3
"""Checks the documents: quoted code is in the examples, links lead to files, the index names every page, and the glossary every
word once. Two habits that make sentences hard to read are looked for in the documents, and in comments and messages, too."""

import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("data/**/*.md")])
QUOTED = re.compile(r"^<!-- (examples/\S+) -->\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```(?:cpp|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)  # Blocks of code are skipped: a C++ lambda looks like a link.
SOURCES = ("include", "src", "runtime", "tools", "python", "models", "scripts", "bench", "examples", "tests", "data")
WRITTEN = {".h", ".cc", ".py", ".pyi", ".js", ".sh", ".cmake", ".txt"}
# A sentence that begins with "Of ..." and leaves open what it is about; "it is no ..." in the place of "it is not a ...".
HABITS = {
    "begins with 'Of'": re.compile(r"\bOf (?!these\b)[a-z`]"),
    "says 'is no'": re.compile(r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer|smaller|larger|other|better|worse)")}
BREAK = re.compile(r"\n[ \t]*(?://|#|\*|\"(?=[^\"]))?[ \t]*")  # within a sentence that goes on in the next line
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


class DocumentsTest(unittest.TestCase):
    def test_quoted_code_stands_in_its_example(self) -> None:
        quoted = [(document, *found) for document in DOCUMENTS for found in QUOTED.findall(document.read_text())]
        self.assertEqual({pathlib.Path(name).suffix for _, name, _ in quoted}, {".cc", ".py"})
        for document, name, block in quoted:
            self.assertIn(block, (ROOT / name).read_text(), f"{document.relative_to(ROOT)}: not in {name}:\n{block}")

    def test_readme_quotes_all_of_its_code(self) -> None:
        text = (ROOT / "README.md").read_text()
        self.assertTrue(CODE.findall(text))
        self.assertEqual(CODE.findall(text), [block for _, block in QUOTED.findall(text)])

    def test_every_mark_is_followed_by_code(self) -> None:
        for document in DOCUMENTS:
            text = document.read_text()
            self.assertEqual(text.count("<!-- examples/"), len(QUOTED.findall(text)), document.relative_to(ROOT))

    def test_links_lead_to_files(self) -> None:
        for document in DOCUMENTS:
            for target in LINK.findall(BLOCK.sub("", document.read_text())):
                self.assertTrue((document.parent / target).exists(), f"{document.relative_to(ROOT)}: {target}")

    def test_index_has_every_page(self) -> None:
        index = ROOT / "docs" / "README.md"
        named = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
        pages = [page for page in ROOT.glob("docs/**/*.md") if page != index and "decisions" not in page.parts]
        self.assertEqual([str(page.relative_to(ROOT)) for page in pages if page not in named], [])

    def test_glossary_has_every_word_once(self) -> None:
        rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
        words = collections.Counter(word for row in rows for word in row.split(", "))
        self.assertGreater(len(words), 80)
        self.assertEqual([word for word, count in words.items() if count > 1], [])

    def test_sentences_are_plain(self) -> None:
        for what, example in zip(HABITS, ("Of all plans, the last", "as this\n  // is no plan"), strict=True):
            self.assertEqual(habits_in(example), [what])
        self.assertEqual(habits_in("there\n// is no plan, and it is no longer one of these. Of these, two are left"), [])
        sources = [path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in WRITTEN]
        self.assertGreater(len(sources), 500)
        for path in [*DOCUMENTS, *sources]:
            if path != pathlib.Path(__file__).resolve() and "corpus" not in path.parts:
                self.assertEqual(habits_in(path.read_text()), [], path.relative_to(ROOT))


def habits_in(text: str) -> list[str]:
    joined = BREAK.sub(" ", text)
    return [what for what, habit in HABITS.items() if habit.search(joined)]


if __name__ == "__main__":
    unittest.main()
