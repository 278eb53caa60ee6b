"""The tour's stop for pretraining."""

import json

import pytest

from experiments.folnet_pretrain.tour import tour_stop
from tests.experiments.folnet_pretrain.small import small, write_text

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture
def source(tmp_path):
    return write_text(tmp_path)


@pytest.mark.slow
def test_its_stop_on_the_tour_shows_filled_in_words(source, tmp_path):
    config = small(source, baseline="transformer")
    stop = tour_stop(tmp_path / "stop", config)
    first, baseline = (
        json.loads((folder / "summary.json").read_text())
        for folder in (tmp_path / "stop", tmp_path / "stop" / "baseline")
    )
    assert baseline["train_seconds"] >= first["train_seconds"]
    assert f"{baseline['step']} steps" in stop.meaning
    assert len(stop.rows) == config.blanks
    assert all(set(row) == {"held-out text", "original", "FOLNet", "Transformer"} for row in stop.rows)
    assert [path.name for path in stop.figures] == ["loss_by_steps.png", "loss_by_seconds.png", "filled.png"]
    assert all(path.is_file() for path in stop.figures)
    assert "does not show which is better" in stop.caveat
