"""The division of a set into parts."""

import pytest

from tp_transformer.mathematics import parts
from tp_transformer.mathematics.modules import SPLITS, modules_of
from tp_transformer.mathematics.parts import PART_SECONDS, Part, part_size, parts_of
from tp_transformer.mathematics.sources import Generator


@pytest.mark.parametrize("split", SPLITS)
def test_parts_are_about_a_minute_and_make_up_the_set(split):
    """Parts take about a minute, less only for the fastest modules, and cover all questions."""
    whole = Generator(train=3 * 666_666, test=10_000)
    count = 666_666 if split.startswith("train") else 10_000
    for module in modules_of(split):
        parts = parts_of(whole, split, module)
        assert [part.number for part in parts] == list(range(len(parts)))
        assert sum(part.count for part in parts) == count
        assert {part.count for part in parts[:-1]} <= {part_size(split, module)}
        assert max(part.seconds for part in parts) <= PART_SECONDS
        assert parts[0].seconds > PART_SECONDS / 2 or parts[0].count in (65536, count)


def test_sizes_of_parts_are_what_they_were():
    """Recorded, as powers of two: they determine which questions a seed gives."""
    powers = [
        16, 14, 16, 14, 12, 12, 14, 14, 16, 16, 16, 16, 16, 16, 16, 16, 11, 11, 13, 16, 15, 16, 15, 16,
        15, 16, 15, 16, 16, 16, 16, 14, 16, 14, 16, 14, 16, 14, 16, 15, 16, 14, 16, 15, 16, 15, 13, 14,
        15, 13, 14, 13, 13, 15, 16, 16,
    ]  # fmt: skip
    for split in SPLITS:
        usual = split != "extrapolate"
        recorded = powers if usual else [12, 16, 16, 16, 16, 16, 16, 15, 16, 9, 16, 16, 16, 16, 16]
        assert [part_size(split, module) for module in modules_of(split)] == [2**power for power in recorded]


def test_parts_have_at_least_32_questions(monkeypatch):
    monkeypatch.setattr(parts, "PART_SECONDS", 0.001)
    assert part_size("extrapolate", "comparison__sort_more") == 32


def test_a_larger_set_begins_with_the_same_parts():
    """The questions of a smaller set come first in a larger one."""
    module = "probability__swr_p_level_set"
    small, large = (parts_of(Generator(train=n, test=0), "train-easy", module) for n in (9_000, 90_000))
    assert small[:-1] == large[: len(small) - 1]
    assert small[-1] == Part("train-easy", module, len(small) - 1, small[-1].count)
    whole = parts_of(Generator(train=3 * 65_537, test=1), "train-hard", "numbers__gcd")
    assert [part.count for part in whole] == [65_536, 1]
    assert [part.count for part in parts_of(Generator(train=3, test=1), "interpolate", module)] == [1]
    assert small[-1].count <= large[len(small) - 1].count
