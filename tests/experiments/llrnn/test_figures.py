"""Figures of runs of the LLRNN experiment."""

import pytest

from experiments.llrnn import figures, train
from experiments.llrnn.config import CellConfig, TaskOptions
from tests.experiments.llrnn.small import short


@pytest.mark.slow
def test_figures_of_held_out_pairs(tmp_path):
    config = short(
        task="group_powers",
        task_options=TaskOptions(
            group="S4", operators=3, held_out=2, train_lengths=(1, 3), test_lengths=(3,)
        ),
        cell=CellConfig(name="higher_order", features=4, update="linear", coupling="given", max_power=7),
    )
    train.main(config, workdir=tmp_path / "run")
    assert (tmp_path / "run" / "held_out.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("cell", "name"), [("higher_order", "higher order"), ("pattern_ntm", "pattern NTM"), ("lstm", "LSTM")]
)
def test_names_of_cells(cell, name):
    assert figures.shown(cell) == name


def test_final_errors_by_split():
    errors = {"train/error_16": 0.2, "train/error_8": 0.1, "held_out/error_8": 0.4}
    results = {name: {"error": error} for name, error in errors.items()} | {"score": 0.9}
    assert figures.by_split(results) == {"train": [(8, 0.1), (16, 0.2)], "held_out": [(8, 0.4)]}
