"""Tests of what is fixed before the first reported seed: what is recorded, refused and may be added."""

import dataclasses
import subprocess

import claimed  # pyrefly: ignore[missing-import]
import pytest

from experiments.runtime import claim_declaring, claims

pytestmark = pytest.mark.usefixtures("committed", "compiled_quickly")

LARGER = claimed.config(optimizer="adam", batch_size=16)
REAL_UNTRACKED = claim_declaring.untracked


def test_the_declaration_is_recorded_before_the_first_reported_seed(uninterrupted):
    """Its line stands between the search and the reported runs."""
    kinds = [line["kind"] for line in claimed.record_of(uninterrupted).lines]
    assert kinds == ["search"] * 4 + ["declaration"] + ["reported"] * 6
    times = [
        line["train_seconds"] for line in claimed.record_of(uninterrupted).lines if "train_seconds" in line
    ]
    assert len(times) == 10
    assert times == [round(seconds, 2) for seconds in times]


@pytest.mark.parametrize(
    ("comparison", "named"),
    [
        (claimed.edited(config=LARGER), "Adam: config.batch_size: 8 there, 16 now"),
        (claimed.edited(num_seeds=2), "models"),
        (claimed.edited(search=({"lr": 0.02}, {"lr": 0.1})), "models"),
        (claimed.comparison(level=0.9), "level: 0.95 there, 0.9 now"),
        (claimed.comparison(measure=lambda run: {"distance": 0.0}), "measure"),
        (claimed.comparison(seeds=(0, 1, 2, 3)), "seeds"),
        (claimed.comparison(search_seeds=(101,)), "search_seeds"),
        (claimed.comparison(claims=claimed.comparison().claims[:1]), "claims"),
    ],
)
def test_an_edited_declaration_is_refused_after_its_first_reported_seed(comparison, named, begun, tmp_path):
    """Whatever it fixes: config, comparison, grid, level, measure, seeds, claims; nothing is trained."""
    claimed.copied(begun, tmp_path)
    before = claimed.record_of(tmp_path).path.read_bytes()
    never = dataclasses.replace(claimed.SIMULATED, main=None)
    with pytest.raises(ValueError, match="edited after its first reported seed") as refused:
        claimed.run(comparison, tmp_path, never)
    assert named in str(refused.value)
    assert claimed.record_of(tmp_path).path.read_bytes() == before


def growing(more=(), claims=(), **fields):
    """Its claims name the models that they compare with; `more` of both can be added."""
    first = claimed.comparison()
    own = tuple(dataclasses.replace(claim, against=("Adam",)) for claim in first.claims)
    return claimed.comparison(
        **{"models": (*first.models, *more), "claims": (*claims, *own), "family": 4, **fields}
    )


LARGER_ADAM = dataclasses.replace(claimed.comparison().models[1], name="larger Adam", config=LARGER)
FURTHER = dataclasses.replace(
    claimed.comparison().claims[0], id="slope.optimizer.larger", ours="larger Adam", against=("Adam",)
)


def test_models_and_claims_can_be_added_later(tmp_path, monkeypatch):
    """Only what is new is trained, under a declaration of its own; the lines of before stay as they are."""
    before = claimed.run(growing(), tmp_path)
    assert [line["level"] for line in before] == [0.9875, 0.9875]
    monkeypatch.setattr(claim_declaring, "commit_of", lambda folder: "beef")
    after = claimed.run(growing([LARGER_ADAM], [FURTHER]), tmp_path)
    assert [line["fixed_beforehand"] for line in after] == ["beef", "c0ffee", "c0ffee"]
    assert after[1:] == before
    assert [line["id"] for line in claims.read(tmp_path / "out")] == [
        "slope.optimizer", "slope.optimizer.close", "slope.optimizer.larger",
    ]  # fmt: skip
    lines = claimed.record_of(tmp_path).lines
    kinds = [line["kind"] for line in lines]
    assert kinds == (
        ["search"] * 4
        + ["declaration"]
        + ["reported"] * 6
        + ["search"] * 2
        + ["extension"]
        + ["reported"] * 3
    )
    assert {line["model"] for line in lines[11:] if "model" in line} == {"larger Adam"}
    assert claimed.run(growing([LARGER_ADAM], [FURTHER]), tmp_path) == after
    assert len(claimed.record_of(tmp_path).lines) == len(lines)
    smaller = dataclasses.replace(LARGER_ADAM, config=claimed.config(optimizer="adam"))
    with pytest.raises(ValueError, match=r"larger Adam: config\.batch_size: 16 there, 8 now"):
        claimed.run(growing([smaller], [FURTHER]), tmp_path)


@pytest.mark.parametrize(
    "fields", [{"family": 0}, {"claims": claimed.comparison().claims}], ids=["level", "compared with all"]
)
def test_what_would_change_earlier_claims_cannot_be_added(fields, tmp_path):
    """A further claim lowers the level unless the family is fixed; a claim about all models has one more."""
    claimed.run(growing(**fields), tmp_path)
    with pytest.raises(ValueError, match="edited after its first reported seed"):
        claimed.run(growing([LARGER_ADAM], **fields), tmp_path)


def test_a_search_may_be_followed_by_an_edit(tmp_path):
    """Before the first reported seed the declaration is free; a changed model is searched again."""
    claimed.killed(17, claimed.comparison(), tmp_path)  # four runs have 16 evaluations
    assert [line["kind"] for line in claimed.record_of(tmp_path).lines] == ["search"] * 4 + ["declaration"]
    claimed.run(claimed.edited(config=LARGER), tmp_path)
    kinds = [line["kind"] for line in claimed.record_of(tmp_path).lines]
    assert kinds == ["search"] * 4 + ["declaration"] + ["search"] * 2 + ["declaration"] + ["reported"] * 6


def test_uncommitted_changes_are_refused_before_the_first_reported_seed(tmp_path, monkeypatch):
    """The search may run; the declaration is recorded with a commit that holds it, or not at all."""
    monkeypatch.setattr(claim_declaring, "commit_of", lambda folder: "c0ffee-dirty")
    with pytest.raises(ValueError, match="uncommitted"):
        claimed.run(claimed.comparison(), tmp_path)
    assert {line["kind"] for line in claimed.record_of(tmp_path).lines} == {"search"}


def test_a_new_file_is_refused_before_the_first_reported_seed(tmp_path, monkeypatch):
    """A declaration that git does not track is not committed."""
    monkeypatch.setattr(claim_declaring, "untracked", lambda folder: ["experiments/new/claims.py"])
    with pytest.raises(ValueError, match="new Python files"):
        claimed.run(claimed.comparison(), tmp_path)


def test_untracked_files_are_seen(tmp_path):
    """Wherever they are in the checkout; ignored ones and other kinds of files do not count."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert REAL_UNTRACKED(tmp_path) == []
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("a/new.py", "a/b/notes.txt", "ignored.py"):
        (tmp_path / name).write_text("")
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    assert REAL_UNTRACKED(tmp_path / "a" / "b") == ["../new.py"]
