"""What an experiment has to show on the tour (`experiments/tour.py`)."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Stop:
    """One experiment's place on the tour's page.

    Attributes:
        title: what is asked.
        meaning: what the result says, for a reader who has not read the paper.
        rows: the table under it, for each row the values by column; all rows have the same columns.
        figures: files under the tour's directory, with a caption each.
        caveat: what was given, or what the result does not show.
    """

    title: str
    meaning: str
    rows: Sequence[Mapping[str, str]]
    figures: Mapping[Path, str]
    caveat: str
