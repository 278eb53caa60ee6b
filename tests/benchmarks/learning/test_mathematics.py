"""The comparison: which runs there are, lines to table and figures."""

import copy
import dataclasses

import pytest

from benchmarks import records
from benchmarks.learning import mathematics as learning
from benchmarks.learning.mathematics import ROOM
from experiments.mathematics.figures import ALWAYS
from tests.experiments.mathematics.small import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def line(model, initialization, seed, right):
    modules = {"numbers__gcd": {"right": right, "total": 10}, "numbers__lcm": {"right": 10, "total": 10}}
    split = {"split": "interpolate", "average": (right / 10 + 1) / 2, "above_95": 1, "modules": modules}
    always = copy.deepcopy(split) | {"average": 0.25}
    return {
        "preset": "modules", "model": model, "initialization": initialization, "seed": seed, "steps": 4,
        "train_seconds": 1.5, "versions": {"jax": "0"}, "date": "today",
        "results": {"parameters": 1234, "interpolate": split, "commonest_answer": {"interpolate": always}},
    }  # fmt: skip


LINES = [
    line("transformer", "xavier", 0, 2),
    line("tp_transformer", "xavier", 1, 6),
    line("tp_transformer", "xavier", 0, 4),
    line("tp_transformer", "xavier", 0, 0) | {"preset": "other"},
]


def test_models_of_a_comparison_have_as_many_parameters():
    for initialization in learning.INITIALIZATIONS:
        tp, plain = (learning.configure(small(), f"{name}-{initialization}") for name in learning.MODELS)
        assert (tp.model.name, plain.model.name) == learning.MODELS
        assert tp.model.initialization == plain.model.initialization == initialization
        assert tp.model.filter_features == small().model.filter_features
        assert abs(plain.model.parameters() / tp.model.parameters() - 1) < 0.02


def test_lines_are_grouped_by_model_and_initialisation_in_the_order_of_seeds():
    groups = learning.groups(LINES[:3])
    assert {name: [run["seed"] for run in runs] for name, runs in groups.items()} == {
        "TP-Transformer, xavier": [0, 1],
        "Transformer, xavier": [0],
    }


def test_the_table_has_every_seed_and_the_interval_over_them():
    assert "preset `other`, 4 steps" in ROOM.table(LINES)
    rows = ROOM.table(LINES[:3]).splitlines()
    assert rows[-2].startswith(
        "| TP-Transformer, xavier | 1,234 | interpolate | 0.7000, 0.8000 | 0.7500 (0.1147"
    )
    assert "| 0.6000 | - |" in rows[-1]


def test_bars_are_of_all_seeds_together():
    (axes,) = learning.drawn(LINES[:3])["accuracy_interpolate"].axes
    assert [bar.get_width() for bar in axes.containers[0]] == [0.5, 1.0]  # 4 and 6 of 10, and all
    assert axes.containers[2].get_label().startswith(ALWAYS)


def test_an_unknown_variant_is_refused():
    with pytest.raises(ValueError, match="variants: got 'transformer-zero', expected some of tp_"):
        learning.configure(small(), "transformer-zero")


@pytest.mark.slow
def test_a_comparison_is_run_recorded_and_not_run_again_in_a_session(tmp_path):
    def room(**changes):
        experiment = dataclasses.replace(ROOM.experiment, presets=lambda name: small(eval_every=0), **changes)
        return dataclasses.replace(ROOM, experiment=experiment)

    arguments = ("tiny", learning.VARIANTS, 1, tmp_path / "runs", tmp_path / "out")
    lines = records.claim(room(), *arguments)
    assert [ROOM.variant(line) for line in lines] == learning.VARIANTS
    assert records.read(tmp_path / "out") == lines
    assert "--config.model.initialization=uniform" in lines[0]["command"]
    ROOM.draw(lines, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "learning.jsonl", "learning.md", "accuracy_interpolate.png",
    }  # fmt: skip
    # Calling main would fail.
    assert records.claim(room(main=None), *arguments, seconds=100.0) == lines
