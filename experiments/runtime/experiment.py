"""The interface of an experiment: one record, which its room's `__init__.py` creates."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.runtime.claims import Comparison
from experiments.runtime.config import RunConfig


@dataclasses.dataclass(frozen=True)
class Stop:
    """One experiment's section of the tour page.

    Attributes:
        title: the question that the experiment asks.
        meaning: what the result means, for a reader who has not read the paper.
        rows: the result table, one mapping from column to value per row; all rows have the same columns.
        figures: captions by file; the files are under the tour's directory.
        caveat: assumptions, or what the result does not show.
        commands: how to continue: shell commands by purpose.
    """

    title: str
    meaning: str
    rows: Sequence[Mapping[str, str]]
    figures: Mapping[Path, str]
    caveat: str
    commands: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Card:
    """The parts of a released model's README that the run's summary does not contain.

    Attributes:
        title: returns a short description of the model from its config.
        data: source and licence of the data, or a function that returns them from its config.
        limits: limitations of the model, or a function that returns them from its config.
    """

    title: Callable[[Any], str]
    data: str | Callable[[Any], str]
    limits: str | Callable[[Any], str]


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The interface of an experiment for programs that work on all experiments.

    Attributes:
        config: the config class; its `experiment` is the name of the experiment and of its folder.
        presets: returns the config of a preset's name (`runtime.Presets`).
        main: `main(config, workdir=..., parallel=...)` runs the experiment.
        default: the preset used when none is given.
        shorthands: flags that stand for fields: {"data": "own.train"} makes --data=FILE mean
            --config.own.train=FILE.
        shorthands_preset: the preset used when none is given but one of `shorthands`.
        abstract_state: returns, for a config, the state in its checkpoints as `jax.ShapeDtypeStruct`s with
            shardings; None if its runs cannot be released as folders.
        open_model: `open_model(path, step=..., seed=...)` returns the trained model of a run or a released
            folder as an `experiments.exporting.Exportable`.
        tour_stop: runs a config in a directory and returns its section of the tour; None if the tour omits
            the experiment.
        showcase: `showcase(directory, seed)` runs a released model on inputs drawn with a seed, writes
            pictures to the directory and returns a section of the page; None if nothing is released.
        card: text for the README of a released folder.
        claims: the comparisons that its `claims.py` declares.
    """

    config: type[RunConfig]
    presets: Callable[[str], RunConfig]
    main: Callable[..., Any]
    default: str = "quick"
    shorthands: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shorthands_preset: str = ""
    abstract_state: Callable[[Any], Any] | None = None
    open_model: Callable[..., Any] | None = None
    tour_stop: Callable[[Path, Any], Stop] | None = None
    showcase: Callable[[Path, int], Stop] | None = None
    card: Card | None = None
    claims: Sequence[Comparison] = ()

    @property
    def name(self) -> str:
        """The folder's name in `experiments/`, as in `python -m experiments.NAME`."""
        return self.config.experiment
