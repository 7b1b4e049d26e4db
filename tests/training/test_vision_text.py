"""Scores of descriptions, against numbers worked out by hand or by brute force."""

import itertools
import random

import pytest

from training.gemma3_vision.text_metrics import chrf, rouge_l, summary, well_formed


def brute_lcs(left, right):
    """Longest common subsequence by trying every subsequence of the shorter text."""
    short, long = sorted((left, right), key=len)
    for size in range(len(short), 0, -1):
        for chosen in itertools.combinations(short, size):
            rest = iter(long)
            if all(word in rest for word in chosen):
                return size
    return 0


def test_rouge_l_is_the_f1_of_the_longest_common_subsequence():
    rng = random.Random(0)
    for _ in range(60):
        left = [rng.choice("abcd") for _ in range(rng.randint(1, 8))]
        right = [rng.choice("abcd") for _ in range(rng.randint(1, 8))]
        common = brute_lcs(left, right)
        recall, precision = common / len(left), common / len(right)
        expected = 2 * recall * precision / (recall + precision) if common else 0.0
        assert rouge_l(" ".join(left), " ".join(right)) == pytest.approx(expected)


def test_rouge_l_of_lins_example():
    reference = "police killed the gunman"
    assert rouge_l(reference, "police kill the gunman") == pytest.approx(3 / 4)
    assert rouge_l(reference, "the gunman kill police") == pytest.approx(2 / 4)


def test_rouge_l_ignores_case_and_punctuation_and_reads_any_script():
    assert rouge_l("A red Mug.", "a RED mug") == 1
    assert rouge_l("красная кружка", "синяя кружка") == pytest.approx(0.5)
    assert rouge_l("", "a") == rouge_l("a", "...") == 0


def test_chrf_of_equal_and_of_foreign_texts():
    assert chrf(["a red mug"], ["a red mug"]) == pytest.approx(100)
    assert chrf(["a red mug"], ["zzzz"]) < 5


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("A red mug with white dots for every day.", True),
        ("A red mug.", False),
        ("Sure! Here is a description of a red mug for you.", False),
        ("**A red mug** with white dots for every day.", False),
        ("A red mug with white dots.\n\nBuy it now today.", False),
        ("<description>A red mug with white dots</description>", False),
        (" ".join(f"word{i}" for i in range(30)), False),
        ("wit wit wit wit wit wit", False),
        ("A red mug, a red mug, a red mug.", False),
        ("A very, very red mug for a very long day.", True),
    ],
)
def test_form(text, good):
    assert well_formed(text, least=5, most=20) is good


def test_summary():
    found = summary(["a red mug", "a blue pot"], ["a red mug", "x y"], 1, 10)
    assert found["rows"] == 2
    assert found["rouge_l"] == 50
    assert found["words"] == 2.5
    assert found["well_formed"] == 1
