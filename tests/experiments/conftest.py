"""Finished runs that several modules use, since their programs take long to compile; looks of figures."""

import dataclasses

import pytest

from experiments.boxworld import train as boxworld
from experiments.folnet_pretrain import train as folnet_pretrain
from experiments.mathematics import train as mathematics
from tests import workers
from tests.experiments.boxworld.small import small
from tests.experiments.folnet_pretrain import small as small_folnet
from tests.experiments.mathematics import small as small_mathematics


@pytest.fixture
def looks(request, monkeypatch):
    """Compares all figures that a test makes with their record."""
    from matplotlib.figure import Figure

    from tests import recorded
    from tests.experiments import looks

    made: list[Figure] = []
    start = Figure.__init__

    def make(figure, *args, **options):
        start(figure, *args, **options)
        made.append(figure)

    monkeypatch.setattr(Figure, "__init__", make)
    yield
    parts = [part for figure in made for part in looks.described(figure)]
    recorded.check(request.path, request.node.name, parts, looks.TOLERANCE)


@pytest.fixture(scope="session")
def boxworld_run(tmp_path_factory):
    """Workdir and result of the smallest run, without interruption; do not continue it."""
    with workers.only_one(tmp_path_factory, "boxworld") as folder:
        return folder / "run", boxworld.main(small(), workdir=folder / "run")


@pytest.fixture(scope="session")
def folnet_run(tmp_path_factory):
    """Config, workdir and results of the smallest pretraining with its baseline; do not continue it."""
    with workers.only_one(tmp_path_factory, "folnet") as folder:
        source = small_folnet.write_text(folder)
        config = small_folnet.small(source, baseline="transformer", schedule="linear")
        return config, folder / "run", folnet_pretrain.main(config, workdir=folder / "run")


@pytest.fixture(scope="session")
def mathematics_run(tmp_path_factory):
    """Config, workdir and results of a run of four steps with a baseline, on generated questions."""
    # A baseline that is the model itself is compiled once, too.
    data = dataclasses.replace(small_mathematics.DATA, validation=6)
    config = small_mathematics.small(data=data, baseline=small_mathematics.MODEL)
    # One shape for training and tests, to compile each program once.
    one = {"extrapolation": ("numbers__place_value_big",), "buckets": ("162x32",)}
    config.data = dataclasses.replace(config.data, **one)
    with workers.only_one(tmp_path_factory, "mathematics") as folder:
        return config, folder / "run", mathematics.main(config, workdir=folder / "run")
