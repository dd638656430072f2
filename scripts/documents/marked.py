"""Parts of pages that are written from results: <!-- name --> ... <!-- end -->."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path


def table_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def write_parts(page: Path, parts: Mapping[str, str]) -> None:
    """Puts each text behind the mark with its name."""
    text = page.read_text()
    for name, part in parts.items():
        made = f"<!-- {name} -->\n{part}\n<!-- end -->"
        text = re.sub(rf"<!-- {name} -->.*?<!-- end -->", lambda _, made=made: made, text, flags=re.DOTALL)
    page.write_text(text)
