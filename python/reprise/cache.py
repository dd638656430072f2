"""Files that make a second run quick: measurements and plans.

They lie in $REPRISE_CACHE_DIR, else in reprise/ of the user's cache folder. A file appears
whole or not at all; one that cannot be read or written is treated as absent, with a warning.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

log = logging.getLogger("reprise")


def folder() -> Path:
    named = os.environ.get("REPRISE_CACHE_DIR")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "reprise"


def read(name: str) -> Any | None:
    path = folder() / name
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        refuse(name, error)
        return None


def refuse(name: str, why: object) -> None:
    """For what can be read but makes no sense."""
    log.warning("cannot use %s (%s): it will be made anew", folder() / name, why)


def write(name: str, content: Any) -> bool:
    """Whether it could be written."""
    path = folder() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as part:
            json.dump(content, part)
        os.replace(part.name, path)
    except OSError as error:
        log.warning("cannot write %s (%s): the next run will not find it", path, error)
        return False
    return True
