"""What two texts share that differ in writing alone: case, punctuation, spaces, Unicode's forms."""

from __future__ import annotations

import re
import unicodedata


def alike(text: str) -> str:
    """What is left of a text that two writers of the same thing share: its words and numbers."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))
