"""What the rest of the house needs of an experiment: one record, which its room's `__init__.py` makes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.runtime.claims import Comparison
from experiments.runtime.config import RunConfig


@dataclasses.dataclass(frozen=True)
class Stop:
    """One experiment's section of the tour's page.

    Attributes:
        title: what is asked.
        meaning: what the result says, for a reader who has not read the paper.
        rows: the table below it, for each row the values by column; all rows have the same columns.
        figures: files under the tour's directory, with a caption each.
        caveat: what was given, or what the result does not show.
    """

    title: str
    meaning: str
    rows: Sequence[Mapping[str, str]]
    figures: Mapping[Path, str]
    caveat: str


@dataclasses.dataclass(frozen=True)
class Card:
    """What a released folder's README says of the model, besides what the run's summary says.

    Attributes:
        title: from a config to the model in a few words.
        data: where the data come from, and their licence.
        limits: what the model is not.
    """

    title: Callable[[Any], str]
    data: str
    limits: str


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment, as the programs over all experiments see it.

    Attributes:
        config: its config class, whose `experiment` is the experiment's name and its folder's.
        presets: from a preset's name to a config (`runtime.presets`).
        main: `main(config, workdir=..., parallel=...)` runs it.
        default: the preset that is run when none is named.
        abstract_state: from a config to what its checkpoints hold, as `jax.ShapeDtypeStruct`s with shardings;
            None if its runs are not released as folders.
        open_model: `open_model(path, step=..., seed=...)`, the trained model of a run or of a released folder
            as an `experiments.exporting.Exportable`.
        tour_stop: from a directory and a config, runs it there and says what it shows; None if the tour
            leaves the experiment out.
        card: for the card of a released folder.
        claims: the comparisons that its `claims.py` declares.
    """

    config: type[RunConfig]
    presets: Callable[[str], RunConfig]
    main: Callable[..., Any]
    default: str = "quick"
    abstract_state: Callable[[Any], Any] | None = None
    open_model: Callable[..., Any] | None = None
    tour_stop: Callable[[Path, Any], Stop] | None = None
    card: Card | None = None
    claims: Sequence[Comparison] = ()

    @property
    def name(self) -> str:
        """The folder in `experiments/`, and NAME of `python -m experiments.NAME`."""
        return self.config.experiment
