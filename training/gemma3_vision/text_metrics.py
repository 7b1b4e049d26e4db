"""How close a description is to its reference, and whether it has the asked form."""

import re
from collections.abc import Sequence

WORD = re.compile(r"\w+", re.UNICODE)
# Chat or Markdown around the description: the prompt asks for the description alone.
WRAPPING = re.compile(
    r"^\s*(sure|certainly|here is|here's|okay)\b|[*#`]{2}|<[a-z_]+>|^\s*[-*] ", re.I
)
# One to four words, three times in a row.
REPEATED = re.compile(r"\b(\w+(?:\W+\w+){0,3})(?:\W+\1\b){2}", re.I)


def words(text: str) -> list[str]:
    """Lower-case words: letters and digits of any script, punctuation dropped."""
    return WORD.findall(text.casefold())


def rouge_l(reference: str, candidate: str) -> float:
    """F1 of the longest common subsequence of words, 0 to 1.

    ROUGE-L of Lin 2004 with beta 1, one reference, no stemming.
    """
    wanted, given = words(reference), words(candidate)
    if not wanted or not given:
        return 0.0
    row = [0] * (len(given) + 1)
    for word in wanted:
        diagonal = 0
        for column, other in enumerate(given, start=1):
            above = row[column]
            row[column] = diagonal + 1 if word == other else max(above, row[column - 1])
            diagonal = above
    common = row[-1]
    return 2 * common / (len(wanted) + len(given))


def chrf(references: Sequence[str], candidates: Sequence[str]) -> float:
    """Corpus chrF of sacrebleu (character 6-grams, beta 2), 0 to 100."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF().corpus_score(list(candidates), [list(references)]).score


def well_formed(text: str, least: int, most: int) -> bool:
    """One paragraph of `least` to `most` words, without chat, Markdown or the same over again."""
    plain = "\n" not in text.strip() and not WRAPPING.search(text) and not REPEATED.search(text)
    return least <= len(text.split()) <= most and plain


def summary(
    references: Sequence[str], candidates: Sequence[str], least: int, most: int
) -> dict[str, float]:
    """Means over the rows: ROUGE-L and chrF (0 to 100), words, share of well-formed texts."""
    count = len(candidates)
    scores = [rouge_l(r, c) for r, c in zip(references, candidates, strict=True)]
    good = sum(well_formed(text, least, most) for text in candidates)
    return {
        "rows": count,
        "rouge_l": round(100 * sum(scores) / count, 2),
        "chrf": round(chrf(references, candidates), 2),
        "words": round(sum(len(text.split()) for text in candidates) / count, 1),
        "well_formed": round(good / count, 4),
    }
