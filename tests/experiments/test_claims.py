"""Tests of the claims of this repository: declarations, lines, pages, and the program over all rooms."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments import claims as program
from experiments.folnet_pretrain.parts import TRANSFORMER
from experiments.llrnn.config import Config as LLRNN
from experiments.runtime import claim_publishing, claim_records, claim_tables, claiming, claims
from tests import recorded

ROOT = Path(__file__).resolve().parents[2]
DECLARED = program.comparisons()


@pytest.fixture(scope="module")
def _models_traced_once():
    """A config traces its model to check it; those that differ in these fields have the same one."""
    checked, check = set(), LLRNN.check_cell

    def check_once(config):
        same = repr(dataclasses.replace(config, lr=0.0, seed=0, steps=0))
        if same not in checked:
            check(config)
        checked.add(same)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LLRNN, "check_cell", check_once)
        yield


@pytest.mark.usefixtures("_models_traced_once")
@pytest.mark.parametrize("name", DECLARED)
def test_every_declared_comparison_is_fair(name):
    """It passes the checks of the runner."""
    DECLARED[name][0].check()


def test_declared_baselines_are_the_matched_ones():
    """The declarations state sizes that matching computes, since an import must not trace models."""
    one: tuple[Any, ...] = tuple(model.config for model in DECLARED["folnet.pretraining"][0].models)
    assert dataclasses.replace(one[0], baseline=TRANSFORMER).for_baseline() == one[1]
    two: tuple[Any, ...] = tuple(model.config for model in DECLARED["mathematics.quick"][0].models)
    matched = dataclasses.replace(two[0].model, name="transformer").matched(two[0].model.parameters())
    assert two[1] == dataclasses.replace(two[0], model=matched)


@pytest.mark.parametrize("name", DECLARED)
def test_errors_are_better_if_lower_and_all_else_if_higher(name):
    comparison = DECLARED[name][0]
    measured = [(claim.value, claim.higher_is_better) for claim in comparison.claims]
    if comparison.search_by:
        measured.append((comparison.search_by, comparison.search_higher_is_better))
    for value, higher_is_better in measured:
        of_errors = any(word in value for word in ("error", "loss", "bits", "over_shortest"))
        assert higher_is_better is not of_errors, value


def test_declarations_are_those_of_the_record():
    """By the start of a SHA-256, so that one without a reported seed is not edited by accident either."""
    found = {}
    for name, (comparison, _) in DECLARED.items():
        whole = [comparison.declaration(), [claim.paper for claim in comparison.claims]]
        found[name] = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:12]
    recorded.check(__file__, "declarations", found)


def test_ids_are_unique():
    """No two claims of all rooms have the same id."""
    ids = [claim.id for comparison, _ in DECLARED.values() for claim in comparison.claims]
    assert len(set(ids)) == len(ids) > 5


@pytest.mark.parametrize("name", DECLARED)
def test_no_declaration_was_edited_after_its_first_reported_seed(name):
    """The last declaration in the record is the one in the code, as far as seeds were reported under it."""
    comparison, record = DECLARED[name][0], claim_records.Record(ROOT / "results", name)
    if record.declared is not None and record.reported_seeds() & set(comparison.seeds):
        assert comparison.differences(record.declarations[-1]["declaration"]) == []


def test_lines_say_what_their_numbers_say():
    """Every verdict follows from the numbers in its line; the fields of the design are there."""
    lines = claims.read(ROOT / "results")
    assert len(lines) > 100
    for line in lines:
        assert line["holds"] is claims.verdict(line), line["id"]
        assert {
            "claim", "measure", "higher_is_better", "paper", "target", "tests", "level", "ours", "baselines",
            "fixed_beforehand", "search_seeds", "hardware", "versions", "date", "command", "commit",
        } <= set(line), line["id"]  # fmt: skip
        for entry in (line["ours"], *line["baselines"]):
            assert {"name", "per_seed", "seconds", "parameters"} <= set(entry), line["id"]
        assert all("compared" in entry for entry in line["baselines"]), line["id"]


def test_lines_with_a_declaration_are_those_of_their_record(monkeypatch):
    """A line can be made again from the record of its comparison, and no other way.

    Until the runs of a further try are complete, the line is that of an earlier declaration in the record.
    Configs are not checked again, for every run in it: all of them are above.
    """
    for kind in {type(model.config) for comparison, _ in DECLARED.values() for model in comparison.models}:
        monkeypatch.setattr(kind, "validate", lambda config: None)
    lines = {line["id"]: line for line in claims.read(ROOT / "results")}
    for name, (comparison, _) in DECLARED.items():
        record = claim_records.Record(ROOT / "results", name)
        for claim in comparison.claims:
            line = lines.get(claim.id)
            if line is None or line["fixed_beforehand"] is None:
                continue
            assert record.declared is not None
            edited = comparison.differences(record.declarations[-1]["declaration"])
            if edited or line["fixed_beforehand"] != record.fixed_in(claim.id):
                declared = [each for each in record.lines if each["kind"] == claim_records.DECLARATION]
                before = {each["commit"]: each for each in (declared if edited else declared[:-1])}
                seeds = before[line["fixed_beforehand"]]["declaration"]["seeds"]
                if line.get("given_up"):
                    seeds = [seed for seed in seeds if seed in line["ours"]["seeds"]]
                runs = [each for each in record.lines if each["kind"] == claim_records.REPORTED]
                for entry in (line["ours"], *line["baselines"]):
                    of_model = {run["seed"]: run for run in runs if run["model"] == entry["name"]}
                    values = [of_model[seed]["measurements"][claim.value] for seed in seeds]
                    assert entry["per_seed"] == values, line["id"]
                continue
            chosen, given_up = claim_records.choose(comparison, record), line.get("given_up", False)
            done = tuple(line["ours"]["seeds"]) if given_up else comparison.seeds
            partial = dataclasses.replace(comparison, seeds=done)
            made = claim_publishing.make_line(
                partial, claim, record, chosen, line["command"], given_up=given_up
            )
            assert made == line


def test_every_attempt_has_lines():
    """Also one that was given up: a declaration that another has replaced, with reported seeds under it."""
    published = {line["fixed_beforehand"] for line in claims.read(ROOT / "results")}
    replaced = 0
    for path in sorted((ROOT / "results" / "claims").glob("*.jsonl")):
        declared, reported = None, False
        for line in claim_records.Record(ROOT / "results", path.stem).lines:
            reported |= line["kind"] == claim_records.REPORTED
            if line["kind"] == claim_records.DECLARATION:
                assert not reported or declared in published, path
                replaced += reported
                declared, reported = line["commit"], False
    assert replaced >= 3


def test_the_tables_of_all_pages_are_those_of_the_file():
    """`python -m experiments.claims --tables` changes nothing."""
    pages, lines = claim_tables.pages(ROOT), claims.read(ROOT / "results")
    assert {str(page.relative_to(ROOT)) for page in pages} >= {
        "README.md",
        "docs/claims.md",
        "results/README.md",
    }
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert claim_tables.filled(text, lines) == text, f"{page}: run python -m experiments.claims --tables"


def test_every_id_is_listed():
    """docs/claims.md has them all."""
    text = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    missing = [line["id"] for line in claims.read(ROOT / "results") if f"`{line['id']}`" not in text]
    assert missing == []


def test_tables_are_written(tmp_path):
    """Pages that change are returned; a wrong marker names its page."""
    claims.write(tmp_path / "results", claims.read(ROOT / "results")[:3])
    page = tmp_path / "README.md"
    page.write_text("<!-- claims: *; columns: id -->\n<!-- end of claims -->\n")
    assert program.write_tables(tmp_path, tmp_path / "results") == [page]
    assert program.write_tables(tmp_path, tmp_path / "results") == []
    with pytest.raises(ValueError, match=r"--pages: got .*empty', expected a checkout"):
        program.write_tables(tmp_path / "empty", tmp_path / "results")  # as where only the wheel is installed
    page.write_text("<!-- claims: *; columns: ids -->\n<!-- end of claims -->\n")
    with pytest.raises(ValueError, match=r"README\.md: columns: got 'ids'"):
        program.write_tables(tmp_path, tmp_path / "results")


@pytest.mark.parametrize(
    ("only", "names"),
    [
        (["llrnn.copy"], ["llrnn.copy"]),
        (["llrnn.copy.at40"], ["llrnn.copy"]),
        (["llrnn.copy.at20", "llrnn.copy.at40"], ["llrnn.copy"]),
        (
            ["llrnn.state_tracking"],
            [f"llrnn.state_tracking.{group}" for group in ("parity", "z60", "a5", "s5")],
        ),
        (["boxworld.quick", "llrnn.copy"], ["boxworld.quick", "llrnn.copy"]),
    ],
)
def test_comparisons_are_chosen_by_name_id_or_first_part(only, names):
    """Each once."""
    assert program.chosen(only, DECLARED) == names


def test_an_unknown_claim_is_refused():
    """The names that exist are listed."""
    with pytest.raises(ValueError, match=r"--only: got 'llrnn\.cop', expected some of boxworld\.quick"):
        program.chosen(["llrnn.cop"], DECLARED)


def call(*arguments, cwd):
    command = [sys.executable, "-m", "experiments.claims", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_the_program_lists_all_comparisons(tmp_path):
    """From any folder, with the progress of each; then nothing is written."""
    done = call(cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in DECLARED:
        assert name in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only=nothing",), "--only: got 'nothing'"),
        (("--only=llrnn", "--seeds=0"), "expected one comparison with --seeds, --data or --give_up"),
        (("--only=llrnn", "--give_up=true"), "expected one comparison with --seeds, --data or --give_up"),
        (("--only=llrnn.copy", "--seeds=x"), "--seeds: got x, expected whole numbers"),
        (("--only=llrnn.copy", "--seeds=99"), r"seeds: got [99], expected some of (0, 1, 2, 3, 4)"),
        (("--only=llrnn.copy", "--data=x"), "data: got x, expected no folder"),
        (("--again=3",), "--again: got 3, expected --only or --all with it"),
        (("--seeds=1", "--give_up=true"), "--seeds: got ['1'], expected --only or --all with it"),
        (("--only=llrnn.copy", "--again=3", "--seeds=1"), "--seeds: got ['1'], expected no --again with it"),
    ],
)
def test_wrong_flags_are_reported_in_a_line(arguments, message, tmp_path, monkeypatch, capsys):
    """Before anything is trained or written."""
    given: dict[str, Any] = {}
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        given[name] = value.split(",") if name in ("only", "seeds") else value
    flags_of(monkeypatch, tmp_path, **given)
    with pytest.raises(ValueError) as refused:  # noqa: PT011 -- compared below, as it is
        program.main()
    assert message in str(refused.value)
    assert not (tmp_path / "results").exists()


def flags_of(monkeypatch, tmp_path, **given):
    """Sets the flags of the program; the others have their defaults."""
    values = {"only": [], "seeds": [], "data": None, "seconds": 0.0, "step_times": 0}
    values |= {
        "tables": False,
        "give_up": False,
        "again": 0,
        "all": False,
        "pages": ".",
        "workdir": str(tmp_path / "runs"),
        "out": str(tmp_path / "results"),
    }
    monkeypatch.setattr(program.flags, "FLAGS", type("Values", (), values | given))


def test_the_program_prints_step_times(tmp_path, monkeypatch, capsys):
    def step_times(comparison, experiment, *, steps, data):
        assert (comparison, experiment, data) == (*DECLARED["llrnn.copy"], None)
        return {"one": steps / 800, "two": 1.0}

    monkeypatch.setattr(claiming, "step_times", step_times)
    flags_of(monkeypatch, tmp_path, only=["llrnn.copy"], step_times=100)
    program.main()
    assert capsys.readouterr().out.splitlines() == [
        "llrnn.copy, one: step_seconds=0.125",
        "llrnn.copy, two: step_seconds=1",
    ]
    unfair = dataclasses.replace(DECLARED["llrnn.copy"][0], seeds=(0, 0))
    monkeypatch.setattr(program, "comparisons", lambda: {"llrnn.copy": (unfair, None)})
    with pytest.raises(ValueError, match=r"seeds: got \(0, 0\), expected different ones"):
        program.main()


def test_the_program_gives_an_attempt_up(tmp_path, monkeypatch, capsys):
    def give_up(comparison, *, out, command):
        assert (comparison, out) == (DECLARED["llrnn.copy"][0], tmp_path / "results")
        assert command == "python -m experiments.claims --only=llrnn.copy"
        return [{"id": "llrnn.copy", "holds": False, "tests": ["mean"]}]

    monkeypatch.setattr(claim_publishing, "give_up", give_up)
    flags_of(monkeypatch, tmp_path, only=["llrnn.copy"], give_up=True)
    program.main()
    assert capsys.readouterr().out == "llrnn.copy: **no**\n"


def test_the_program_repeats_runs_drawn_at_random(tmp_path, monkeypatch, capsys):
    """Each once, from all comparisons that are named; more than are done are refused."""
    model = DECLARED["llrnn.copy"][0].models[0]
    pieces = [claim_records.Piece(claim_records.REPORTED, model, {}, seed, 5) for seed in range(3)]
    monkeypatch.setattr(claiming, "finished", lambda comparison, out: pieces)
    monkeypatch.setattr(claiming, "again", lambda comparison, experiment, piece, **folders: piece.seed != 1)
    flags_of(monkeypatch, tmp_path, only=["llrnn.copy", "llrnn.state_tracking.s5"], again=6)
    program.main()
    shown = sorted(capsys.readouterr().out.splitlines())
    assert shown == [
        f"{name}, {model.name}, seed {seed}: {'OTHER' if seed == 1 else 'the same'} bits"
        for name in ("llrnn.copy", "llrnn.state_tracking.s5")
        for seed in range(3)
    ]
    flags_of(monkeypatch, tmp_path, only=["llrnn.copy"], again=4)
    with pytest.raises(ValueError, match="--again: got 4, expected at most 3, the reported runs so far"):
        program.main()


def test_the_program_runs_what_is_chosen_in_the_time_given(tmp_path, monkeypatch, capsys):
    """`--all` leaves out what needs data from outside; the seconds are those of all comparisons together."""
    calls = []

    def run(comparison, experiment, **options):
        calls.append((comparison.name, experiment, options))
        return [{"id": comparison.name, "holds": comparison.name == "llrnn.copy", "tests": ["mean"]}]

    monkeypatch.setattr(claiming, "run", run)
    flags_of(monkeypatch, tmp_path, only=["llrnn.copy", "boxworld"], seconds=50.0)
    program.main()
    of_boxworld = [name for name in DECLARED if name.startswith("boxworld.")]
    assert [name for name, *_ in calls] == ["llrnn.copy", *of_boxworld]
    name, experiment, options = calls[0]
    assert experiment is DECLARED[name][1]
    assert 0 < options.pop("seconds") <= 50
    assert options == {
        "out": tmp_path / "results",
        "workdir": tmp_path / "runs",
        "seeds": [],
        "data": None,
        "command": "python -m experiments.claims --only=llrnn.copy",
    }
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "llrnn.copy",
        *of_boxworld,
    ]
    calls.clear()
    flags_of(monkeypatch, tmp_path, only=["llrnn.copy"], seeds=["1", "0"], data=str(tmp_path))
    program.main()
    ((_, _, options),) = calls
    assert (options["seeds"], options["data"], options["seconds"]) == ([1, 0], tmp_path, 0.0)
    assert options["command"].endswith("--only=llrnn.copy --data=DIR")
    calls.clear()
    needs = dataclasses.replace(DECLARED["llrnn.copy"][0], with_data=lambda config, folder: config)
    monkeypatch.setattr(program, "comparisons", lambda: DECLARED | {"llrnn.copy": (needs, None)})
    flags_of(monkeypatch, tmp_path, all=True)
    program.main()
    without_data = [name for name, (comparison, _) in DECLARED.items() if comparison.with_data is None]
    assert [name for name, *_ in calls] == [name for name in without_data if name != "llrnn.copy"]


def test_a_session_that_ends_early_says_so_and_begins_nothing_else(tmp_path, monkeypatch, capsys):
    """The same command continues."""

    def interrupted(*_, **__):
        raise claiming.Interrupted("time is over after 3 runs")

    monkeypatch.setattr(claiming, "run", interrupted)
    flags_of(monkeypatch, tmp_path, only=["llrnn"])
    program.main()
    assert capsys.readouterr().out == "time is over after 3 runs\n"


@pytest.mark.slow
def test_a_real_comparison_from_start_to_end(tmp_path):
    """The smallest real one, cut to a step, through the program: record, lines, figures."""
    script = """
import dataclasses, runpy, sys
from experiments import llrnn, registry
from experiments.runtime import claim_declaring
claim_declaring.commit_of = lambda folder: "c0ffee"
claim_declaring.untracked = lambda folder: []
copy = llrnn.claims.COPY
models = tuple(dataclasses.replace(model, steps=100, search=model.search[:1]) for model in copy.models)
small = dataclasses.replace(copy, models=models, seeds=(0, 1), search_seeds=())
registry.EXPERIMENTS["llrnn"] = dataclasses.replace(llrnn.EXPERIMENT, claims=(small,))
sys.argv = ["claims", "--only=llrnn.copy"]
runpy.run_module("experiments.claims", run_name="__main__", alter_sys=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = claims.read(tmp_path / "results")
    assert [line["id"] for line in lines] == ["llrnn.copy.at20", "llrnn.copy.at40"]
    assert (tmp_path / "results" / "llrnn" / "copy.png").stat().st_size > 5000
    record = (tmp_path / "results" / "claims" / "llrnn.copy.jsonl").read_text()
    kinds = [json.loads(text)["kind"] for text in record.splitlines()]
    assert kinds == ["declaration"] + ["reported"] * 6
