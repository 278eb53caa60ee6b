"""The division of a set into parts."""

import pytest

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


def test_a_larger_set_begins_with_the_same_parts():
    """The questions of a smaller set come first in a larger one."""
    module = "probability__swr_p_level_set"
    small, large = (parts_of(Generator(train=n, test=0), "train-easy", module) for n in (9_000, 90_000))
    assert small[:-1] == large[: len(small) - 1]
    assert small[-1] == Part("train-easy", module, len(small) - 1, small[-1].count)
    assert small[-1].count <= large[len(small) - 1].count
