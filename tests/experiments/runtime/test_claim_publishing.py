"""Tests of the lines and figures of claims, of complete attempts and of those that were given up."""

import dataclasses

import claimed  # pyrefly: ignore[missing-import]
import pytest

from experiments.runtime import claim_declaring, claim_publishing, claim_records, claims

pytestmark = pytest.mark.usefixtures("committed")


def test_a_claim_may_be_about_any_model(uninterrupted):
    """And against any; a claim that names none is declared as those that could not."""
    record, whole = claimed.record_of(uninterrupted), claimed.comparison()
    chosen = {model.name: {"lr": 0.1} for model in whole.models}
    turned = dataclasses.replace(whole.claims[0], ours="Adam", against=("SGD",), tests=("paired",))
    line = claim_publishing.make_line(whole, turned, record, chosen)
    first = claim_publishing.make_line(whole, whole.claims[0], record, chosen)
    assert (line["ours"]["name"], [entry["name"] for entry in line["baselines"]]) == ("Adam", ["SGD"])
    assert line["ours"]["per_seed"] == first["baselines"][0]["per_seed"]
    assert line["baselines"][0]["per_seed"] == first["ours"]["per_seed"]
    assert "compared" not in line["ours"]
    assert (line["holds"], first["holds"]) == (False, True)
    three = (*whole.models, dataclasses.replace(whole.models[1], name="Lion"))
    larger = dataclasses.replace(whole, models=three)
    found = [
        [model.name for model in larger.models_of(dataclasses.replace(turned, **named))]
        for named in ({}, {"against": ()}, {"ours": "", "against": ("Lion",)})
    ]
    assert found == [["Adam", "SGD"], ["Adam", "SGD", "Lion"], ["SGD", "Lion"]]
    declared = [*whole.declaration()["claims"][0]]
    assert not {"ours", "against", "paper"} & {*declared}
    of_turned = dataclasses.replace(whole, claims=(turned,)).declaration()["claims"][0]
    assert (of_turned["ours"], of_turned["against"]) == ("Adam", ["SGD"])


def test_an_edited_declaration_with_new_seeds_is_another_attempt(uninterrupted, tmp_path, monkeypatch):
    """The line of the first attempt stays, under another id."""
    claimed.copied(uninterrupted, tmp_path)
    monkeypatch.setattr(claim_declaring, "commit_of", lambda folder: "decade")
    lines = claimed.run(claimed.comparison(seeds=(3, 4, 5), level=0.9), tmp_path)
    assert [line["fixed_beforehand"] for line in lines] == ["decade"] * 2
    found = {line["id"]: line for line in claims.read(tmp_path / "out")}
    first = {line["id"]: line for line in claims.read(uninterrupted / "out")}
    assert found["slope.optimizer.attempt1"] == {**first["slope.optimizer"], "id": "slope.optimizer.attempt1"}
    assert found["slope.optimizer"]["ours"]["seeds"] == [3, 4, 5]
    for commit in ("facade", "accede"):
        claim_publishing.publish(tmp_path / "out", [{**lines[0], "fixed_beforehand": commit}])
    assert {
        line["id"]: line["fixed_beforehand"]
        for line in claims.read(tmp_path / "out")
        if not line["id"].startswith("slope.optimizer.close")
    } == {
        "slope.optimizer": "accede",
        "slope.optimizer.attempt1": "c0ffee",
        "slope.optimizer.attempt2": "decade",
        "slope.optimizer.attempt3": "facade",
    }


def test_an_attempt_that_is_given_up_does_not_disappear(begun, tmp_path, monkeypatch):
    """Its lines have the seeds that are done and do not hold; without them nothing else can be declared."""
    claimed.copied(begun, tmp_path)
    again = claimed.comparison(seeds=(3, 4), level=0.9)
    never = dataclasses.replace(claimed.SIMULATED, main=None)
    with pytest.raises(ValueError, match=r"in commit c0ffee has reported seeds and no lines; .* --give_up"):
        claimed.run(again, tmp_path, never)
    with pytest.raises(ValueError, match="got an edited declaration, expected the recorded one: level"):
        claim_publishing.give_up(claimed.comparison(level=0.9), out=tmp_path / "out")
    lines = claim_publishing.give_up(claimed.comparison(), out=tmp_path / "out", command="the command")
    assert lines == claims.read(tmp_path / "out")
    for line in lines:
        assert (line["ours"]["seeds"], line["given_up"], line["holds"]) == ([1], True, False)
        assert (line["command"], line["fixed_beforehand"]) == ("the command", "c0ffee")
    monkeypatch.setattr(claim_declaring, "commit_of", lambda folder: "decade")
    monkeypatch.setattr(claim_declaring, "untracked", lambda folder: [])
    claimed.run(again, tmp_path)
    found = {line["id"]: line for line in claims.read(tmp_path / "out")}
    assert found["slope.optimizer.attempt1"] == {**lines[0], "id": "slope.optimizer.attempt1"}
    assert found["slope.optimizer"]["ours"]["seeds"] == [3, 4]
    assert "given_up" not in found["slope.optimizer"]


def test_only_a_part_can_be_given_up(uninterrupted, tmp_path):
    claimed.copied(uninterrupted, tmp_path)
    with pytest.raises(ValueError, match=r"seeds: got \[0, 1, 2\] done, expected some of \(0, 1, 2\)"):
        claim_publishing.give_up(claimed.comparison(), out=tmp_path / "out")
    with pytest.raises(ValueError, match=r"seeds: got \[\] done, expected some of"):
        claim_publishing.give_up(claimed.comparison(), out=tmp_path / "empty")


def test_figures_show_the_reported_runs_of_the_first_claims_budget(tmp_path, monkeypatch):
    saved = {}
    monkeypatch.setattr(
        "experiments.runtime.plots.save", lambda figure, path: saved.update({path: figure}) or path
    )
    drawn = claimed.two_budgets(figures=lambda runs: {"slope/distance": runs})
    claimed.run(drawn, tmp_path)
    file = tmp_path / "out" / "slope" / "distance.png"
    assert list(saved) == [file]
    assert {
        name: [(line["model"], line["kind"], line["seed"], line["steps"]) for line in lines]
        for name, lines in saved[file].items()
    } == {name: [(name, "reported", seed, 10) for seed in (0, 1, 2)] for name in ("SGD", "Adam")}
    assert claim_publishing.draw(drawn, claimed.record_of(tmp_path), tmp_path / "out") == [file]
    assert claim_publishing.draw(claimed.two_budgets(), claimed.record_of(tmp_path), tmp_path) == []
    monkeypatch.setattr(claim_publishing, "can_draw", lambda: False)
    assert claim_publishing.draw(drawn, claimed.record_of(tmp_path), tmp_path) == []


def test_a_claim_names_every_machine_and_version_and_the_commit_of_the_last_run(uninterrupted):
    comparison, record = claimed.comparison(), claimed.record_of(uninterrupted)
    for number, line in enumerate(line for line in record.lines if line["kind"] == "reported"):
        line["devices"]["cpus"], line["versions"]["jax"] = 9 - number, f"0.{9 - number}"
        line["date"], line["commit"] = f"2026-01-{20 + (number + 3) % 6}", f"commit{number}"
    chosen = claim_records.choose(comparison, record)
    line = claim_publishing.make_line(comparison, comparison.claims[0], record, chosen)
    assert line["hardware"] == " and ".join(f"{count} CPU cores" for count in range(4, 10))
    assert line["versions"] == " and ".join(f"jax 0.{number}" for number in range(4, 10))
    assert (line["date"], line["commit"]) == ("2026-01-25", "commit2")
