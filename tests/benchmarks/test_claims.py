"""Tests of the claims about speed: lines made from the records of the benchmarks."""

import json
from pathlib import Path

import pytest

from benchmarks import claims as speed
from benchmarks import timing
from experiments.runtime import claims

RESULTS = Path(__file__).resolve().parents[2] / "results"
PEERS = {
    "date": "2026-11-22",
    "devices": {"platform": "cpu", "kind": "cpu", "count": 1, "cpus": 2},
    "versions": {"jax": "0.12"},
    "command": "python -m benchmarks.peers",
    "commit": "c0ffee",
    "rows": [
        {
            "subject": "A layer, big",
            "shape": "B=1",
            "direction": "gradient",
            "ours": {"blocks": [1.0, 2.0]},
            "peers": {"PyTorch, eager": {"blocks": [3.0, 4.0]}, "PyTorch, compiled": {"blocks": [1.5, 1.5]}},
        }
    ],
}


def test_the_lines_in_results_are_those_of_the_records():
    """`python -m benchmarks.claims` changes nothing."""
    there = [line for line in claims.read(RESULTS) if line["id"].startswith(speed.PREFIX)]
    assert sorted(speed.lines(RESULTS), key=lambda line: line["id"]) == there
    assert len(there) > 100


def test_ratios_are_of_blocks_that_took_turns():
    """Their time over ours, block by block; the claim holds if every block reaches 1."""
    eager, compiled = speed.peers(PEERS)
    assert eager["id"] == "speed.peers.a_layer_big.gradient.pytorch_eager"
    assert eager["ours"]["per_seed"] == [3.0, 2.0]
    assert eager["ours"]["seconds"] == [1.0, 2.0]
    assert eager["baselines"][0]["seconds"] == [3.0, 4.0]
    assert (eager["holds"], compiled["holds"]) == (True, False)
    assert compiled["ours"]["per_seed"] == [1.5, 0.75]


def test_lines_of_training_steps():
    """One per subject and program, and the geometric means over all subjects; none is left out in silence."""
    timed = {"blocks": [3.0, 4.0], "difference": 1e-6}
    row = {
        "subject": "FOLNet",
        "shape": "2 texts",
        "ours": {"blocks": [2.0, 2.0], "parameters": 7},
        "peers": {"PyTorch, eager": timed},
    }
    means = {"PyTorch, eager": timing.spread([1.1, 1.3])}
    step, mean = speed.training_steps({**PEERS, "rows": [row], "geometric_means": means})
    assert (step["id"], mean["id"]) == (
        "speed.training_step.folnet.pytorch_eager",
        "speed.training_step.geometric_mean.pytorch_eager",
    )
    assert step["ours"]["per_seed"] == [1.5, 2.0]
    assert (step["ours"]["parameters"], step["target"], step["holds"]) == (7, 1.0, True)
    assert (mean["ours"]["per_seed"], mean["target"], mean["holds"]) == ([1.1, 1.3], 1.2, False)
    untimed = {
        **row,
        "peers": {"PyTorch, eager": timed, "PyTorch, compiled": {"differs": "the loss of step 2"}},
    }
    with pytest.raises(ValueError, match=r"FOLNet: got no times of PyTorch, compiled, .*step 2"):
        list(speed.training_steps({**PEERS, "rows": [untimed], "geometric_means": means}))


def test_blocks_of_a_spread_are_kept():
    """New records have every block, older ones three of them, which the measure says."""
    spread = timing.spread([3.0, 1.0, 2.0, 8.0])
    assert speed.faster(PEERS, "x", "a", "b", spread)["ours"]["per_seed"] == [3.0, 1.0, 2.0, 8.0]
    del spread["blocks"]
    line = speed.faster(PEERS, "x", "a", "b", spread)
    assert line["ours"]["per_seed"] == [1.0, 2.5, 8.0]
    assert line["measure"].endswith("(least, median and greatest block)")


def test_other_claims_are_kept(tmp_path, monkeypatch, capsys):
    """Only lines about speed are replaced."""
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "speed.json").write_text(json.dumps(PEERS))
    learning = [line for line in claims.read(RESULTS) if not line["id"].startswith(speed.PREFIX)][:2]
    old = speed.faster(PEERS, "gone", "a", "b", [1.0])
    claims.write(tmp_path, [*learning, old])
    monkeypatch.setattr("sys.argv", ["claims", f"--results={tmp_path}"])
    assert speed.main() == 0
    ids = [line["id"] for line in claims.read(tmp_path)]
    assert ids == sorted([*(line["id"] for line in learning), *(line["id"] for line in speed.peers(PEERS))])
    assert "2 claims about speed, 1 of 2 confirmed" in capsys.readouterr().out


@pytest.mark.parametrize("text", ['{"rows": [', '{"rows": [{}]}', "[]"])
def test_a_damaged_record_is_named(text, tmp_path):
    """And nothing is written."""
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "speed.json").write_text(text)
    with pytest.raises(ValueError, match=r"speed\.json: got no record"):
        speed.lines(tmp_path)


def test_every_record_that_is_named_exists():
    """A record that is renamed would lose its claims in silence."""
    assert not {name for name in speed.RECORDS if not (RESULTS / name).exists()}


def test_slugs():
    """Words joined by underscores."""
    assert speed.slug("[B,T,T,H] einsum") == "b_t_t_h_einsum"
