"""Lines of the record, and the table made of them."""

import pytest

from benchmarks import records
from benchmarks.learning.folnet_pretrain import ROOM
from tests.experiments.folnet_pretrain.small import small, write_text


def line(model, seed, **changes):
    return {
        "model": model, "seed": seed, "parameters": 7, "steps": 4, "held_out": 4.9 + seed,
        "held_out_accuracy": 0.25, "held_out_after_equal_steps": 5.0 + seed, "unigram_entropy": 5.67,
        "below_the_entropy_from": 2, "train_seconds": 1.5, "commit": "0123456789abcdef", **changes,
    }  # fmt: skip


def test_a_table_has_a_row_a_line_and_means_over_seeds():
    lines = [line("folnet", 0), line("baseline", 0, held_out_after_equal_steps=None), line("folnet", 1)]
    text = ROOM.table(lines)
    assert "| folnet | 7 | 0 | 5.00 | 4.90 | 25.0% | 4 | 2 | 1.5 | 0123456789ab |" in text
    assert "| baseline | 7 | 0 | - | 4.90 |" in text
    assert "have 5.67 (the line)" in text
    assert "folnet, mean over 2 seeds with its 95 % interval: 5.50 (" in text
    assert "baseline, mean over 1 seeds with its 95 % interval: - after equal steps, 4.90 after" in text


@pytest.mark.slow
def test_a_run_gives_a_line_a_model(tmp_path):
    config = small(write_text(tmp_path), baseline="transformer", steps=4)
    results = ROOM.experiment.main(config, workdir=tmp_path / "run")
    lines = records.lines_of(ROOM, records.Run("quick", config, tmp_path / "run", results))
    assert [line["model"] for line in lines] == ["folnet", "baseline"]
    for found in lines:
        assert found["held_out"] > 0
        assert found["held_out_after_equal_steps"] is not None
        assert found["unigram_entropy"] > 0
    assert ROOM.table(lines).count("\n|") == 4
