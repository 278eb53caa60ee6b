"""The table of tasks by models, from made-up lines."""

from types import SimpleNamespace
from typing import Any

import pytest

from experiments.reasoning import report
from experiments.reasoning.suite_claims import CLAIMS
from experiments.runtime import claims


def made_up(task: str, model: str, part: str, ours: list[float], baseline: list[float], **more: Any) -> dict:
    """A line as the runner writes it, of a declared claim."""
    values = {model: ours, "slow": [value / 2 for value in baseline], "best": baseline}
    entries = [
        {
            "name": name,
            "per_seed": per_seed,
            "seeds": [0, 1, 2],
            "seconds": [60, 61, 62],
            "parameters": 60_000,
        }
        for name, per_seed in values.items()
    ]
    line = {
        "id": f"reasoning.{task}.{model}.{part}", "claim": "more", "measure": "accuracy", "paper": None,
        "higher_is_better": True, "target": None, "tests": ["paired"], "level": 0.95, "ours": entries[0],
        "baselines": [{**entry, "compared": True} for entry in entries[1:]],
        "fixed_beforehand": None, "search_seeds": [100],
        "hardware": "1 CPU core", "versions": "jax", "date": "2026-11-30", "command": "c", "commit": "c",
        **more,
    }  # fmt: skip
    return {**line, "holds": claims.verdict(line)}


BETTER, WORSE, BASELINE = [0.75, 0.75, 0.75], [0.25, 0.5, 0.75], [0.5, 0.5, 0.5]
LINES = [
    made_up("match3", "simplicial", "equal_time", BETTER, BASELINE),
    made_up("match3", "simplicial", "equal_steps", BETTER, BASELINE, expected=True),
    made_up("match3", "folnet", "equal_time", WORSE, BASELINE),
    made_up("match3", "folnet", "equal_steps", BETTER, BASELINE, expected=False),
    made_up("s5", "lstm", "equal_time", BETTER, BASELINE),
    made_up("s5", "lstm", "equal_steps", WORSE, BASELINE, expected=False),
    made_up("s5", "lstm", "equal_time.attempt1", WORSE, BASELINE),
]


def rows(text: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]


def test_a_row_has_a_task_and_a_column_a_model():
    """Those without lines are left out; what is confirmed is bold."""
    found = rows(report.page(LINES))
    assert found[:4] == [
        ["task", "transformer", "simplicial", "folnet", "lstm"],
        ["---"] * 5,
        ["match3", "0.5 (0.5 to 0.5)", "**0.75 (0.75 to 0.75)**", "0.5 (-0.121 to 1.12)", "-"],
        ["s5", "0.5 (0.5 to 0.5)", "-", "-", "**0.75 (0.75 to 0.75)**"],
    ]
    assert found[4:8] == [
        ["task", "simplicial", "folnet", "lstm"],
        ["---"] * 4,
        ["match3", "**0.25 (0.25 to 0.25)**", "**0.25 (0.25 to 0.25)**", "-"],
        ["s5", "-", "-", "0 (-0.621 to 0.621)"],
    ]


def test_expectations_are_scored():
    """Of both kinds: a model that was not expected to do better is wrong, too, if it does."""
    text = report.page(LINES)
    assert (
        "2 of 3 expectations were right: 1 of 1 that a model answers more than the Transformer after equal "
        "steps, and 1 of 2 that it does not." in text
    )
    assert rows(text)[-3:] == [
        ["`reasoning.match3.simplicial.equal_steps`", "yes", "yes"],
        ["`reasoning.match3.folnet.equal_steps`", "no", "yes"],
        ["`reasoning.s5.lstm.equal_steps`", "no", "**no**"],
    ]


def test_ids_are_those_that_are_declared():
    declared = {claim.id for comparison in CLAIMS for claim in comparison.claims}
    assert {line["id"] for line in LINES} - declared == {"reasoning.s5.lstm.equal_time.attempt1"}


def test_the_program_writes_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(report.flags, "FLAGS", SimpleNamespace(out=str(tmp_path)))
    with pytest.raises(ValueError, match=r"out: got no lines of reasoning\.TASK\.MODEL\.equal_steps"):
        report.main()
    claims.write(tmp_path, LINES)
    report.main()
    text = (tmp_path / "reasoning" / "matrix.md").read_text()
    assert text == report.page(claims.read(tmp_path))
