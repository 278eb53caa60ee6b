"""From a folder of measurements to results, and to what the library does by default."""

import json

import jax.numpy as jnp
import pytest

from benchmarks import collect, kernel_cases, measured
from kernels.two_simplicial import shapes

CASE = kernel_cases.two_simplicial(shapes.VIRTUAL, jnp.bfloat16)
VERSIONS = {"python": "3.12.3", "jax": "0.12", "jaxlib": "0.12", "numpy": "2.5"}
WHERE = {"date": "2026-11-21", "chip": "Test chip", "platform": "gpu", "versions": VERSIONS}
DEVICES = {"platform": "gpu", "kind": "Test chip", "count": 1, "cpus": 16}
THERE = {"date": "2026-11-21", "devices": DEVICES, "versions": {**VERSIONS, "flax": "0.12"}, "commit": None}


def check(holds=True, dtype="bfloat16", **more):
    row = {"operation": CASE.operation.name, "case": f"tiny {dtype}", "implementation": "gpu"}
    return {**row, "errors": [1e-3], "holds": holds, **more}


def speed(direction, ours=(1.0, 1.1), plain=(2.0, 2.1)):
    paths = {
        "gpu": {"seconds": ours[0], "blocks": list(ours)},
        "xla": {"seconds": plain[0], "blocks": list(plain)},
    }
    return {"operation": CASE.operation.name, "case": CASE.name, "direction": direction, "paths": paths}


def step(rate=1e4):
    return {"name": "jmc.atp float32", "problems_per_second": rate, "utilisation": 0.1, "peak_bytes": 10**9}


class Folder:
    """Writes a folder as `benchmarks.accelerator` leaves it."""

    def __init__(self, path):
        self.path = path

    def __call__(self, **files):
        self.path.mkdir(exist_ok=True)
        for name, value in {"machine": WHERE, **files}.items():
            text = value if isinstance(value, str) else json.dumps(value)
            (self.path / f"{name}.json").write_text(text)
        return self.path

    def kernels(self, checks, rows):
        return self(checks_a={**WHERE, "rows": checks}, kernels_a={**WHERE, "rows": rows})


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "measured")


@pytest.fixture
def collected(tmp_path, monkeypatch, capsys):
    """Calls the program; returns the results' folder, the printed lines and the tables' folder."""

    def run(measured):
        results, tables = tmp_path / "results", tmp_path / "tables"
        command = ["collect", str(measured), f"--results={results}", f"--tables={tables}"]
        monkeypatch.setattr("sys.argv", command)
        assert collect.main() == 0
        return results, capsys.readouterr().out.splitlines(), tables

    return run


def fastest(collected, measured):
    results, _, tables = collected(measured)
    assert json.loads((results / "kernels" / "Test-chip.json").read_text())["chip"] == "Test chip"
    return json.loads((tables / "Test-chip.json").read_text())["fastest"]


def test_a_kernel_that_held_and_was_faster_becomes_the_default(folder, collected):
    (line,) = fastest(collected, folder.kernels([check()], [speed("forward"), speed("both")]))
    assert (line["operation"], line["backend"]) == (CASE.operation.name, "gpu")
    assert line["sizes"]["N"] == 1024
    assert line["record"].endswith("kernels/Test-chip.json")


@pytest.mark.parametrize(
    ("checks", "rows"),
    [
        ([check(holds=False)], [speed("forward"), speed("both")]),
        ([check(), check(holds=False)], [speed("forward"), speed("both")]),
        ([check(dtype="float32")], [speed("forward"), speed("both")]),
        ([{**check(), "failed": "illegal address", "holds": False}], [speed("forward"), speed("both")]),
        ([check()], [speed("forward")]),
        ([check()], [speed("forward"), speed("both", ours=(2.2, 2.3))]),
        ([check()], [speed("forward", ours=(1.9, 2.05)), speed("both")]),  # blocks overlap
    ],
    ids=["wrong", "one wrong", "other type", "crashed", "no gradient", "slower", "not always faster"],
)
def test_nothing_else_does(folder, collected, checks, rows):
    assert fastest(collected, folder.kernels(checks, rows)) == []


def test_a_record_with_fewer_rows_replaces_none(folder, collected, tmp_path):
    rows = [step(), {"name": "bert float32", "failed": "not started: budget spent"}]
    results, lines, _ = collected(folder(training_kinship={**THERE, "rows": rows}))
    file = results / "kinship" / "training_Test-chip.json"
    assert lines == [f"{file}: 1 measured rows of 2"]
    assert json.loads(file.read_text())["rows"] == rows
    assert file.with_suffix(".md").read_text().splitlines()[-2:] == [
        "| jmc.atp float32 | 10,000 problems/s | 10.0 | 0.93 |  |",
        "| bert float32 | not started: budget spent |  |  |  |",
    ]
    before = file.read_bytes()
    _, lines, _ = collected(folder(training_kinship={**THERE, "rows": rows[1:]}))
    assert lines == [f"{file}: kept, with 1 measured rows; this folder has 0"]
    assert file.read_bytes() == before
    # An operation that was measured before and is not now would be lost.
    collected(folder.kernels([check()], [speed("forward")]))
    other = {**speed("forward"), "operation": "trans"}
    _, lines, _ = collected(folder(kernels_a={**WHERE, "rows": [other]}))
    assert lines[0].endswith(f"kept, since this folder has no speeds of {CASE.operation.name}")


def test_collected_twice_it_changes_nothing(folder, collected, tmp_path):
    measured = folder.kernels([check()], [speed("forward"), speed("both")])
    folder(training_kinship={**THERE, "rows": [step()]})
    results, first, tables = collected(measured)
    files = [path for root in (results, tables) for path in root.rglob("*.json")]
    before = {path: path.read_bytes() for path in files}
    assert len(before) == 3
    assert collected(measured)[1] == first
    assert {path: path.read_bytes() for path in before} == before


BAD = {
    "got machine and versions ('gpu', 'Another'": ("kernels_a", {**WHERE, "chip": "Another", "rows": []}),
    "got machine and versions": ("training_llrnn", {**THERE, "versions": {"jax": "0.11"}, "rows": []}),
    "json: Expecting": ("checks_a", '{"rows": ['),
    "got list, expected an object": ("training_folnet_pretrain", "[]"),
    "rows: got None, expected list": ("checks_a", WHERE),
    "operation: got 'tuans', expected one of": ("checks_a", {**WHERE, "rows": [check(operation="tuans")]}),
    "holds: got None": ("checks_a", {**WHERE, "rows": [check(holds=None)]}),
    "direction: got 'up'": ("kernels_a", {**WHERE, "rows": [speed("up")]}),
    "expected seconds": ("kernels_a", {**WHERE, "rows": [speed("both", ours=(1.0, -1.0))]}),
    "got nan, expected a positive number": ("training_kinship", {**THERE, "rows": [step(float("nan"))]}),
    "row x: got no rate": ("training_kinship", {**THERE, "rows": [{"name": "x"}]}),
    "failed: got 3, expected str": ("training_kinship", {**THERE, "rows": [{"name": "x", "failed": 3}]}),
    "utilisation: got 'x', expected": (
        "training_kinship",
        {**THERE, "rows": [step() | {"utilisation": "x"}]},
    ),
    "name of a row: got None": ("training_kinship", {**THERE, "rows": [{}]}),
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_damaged_is_refused_by_name(folder, collected, message, tmp_path, capsys):
    name, value = BAD[message]
    measured = folder(training_boxworld={**THERE, "rows": [step()]}, **{name: value})
    with pytest.raises(SystemExit) as end:
        collected(measured)
    assert end.value.code == 2
    lines = capsys.readouterr().err
    assert f"{name}.json" in lines
    assert message in lines
    assert not (tmp_path / "results").exists()


def test_an_empty_folder_is_refused(folder, tmp_path):
    with pytest.raises(ValueError, match=r"got no machine\.json, expected a folder of"):
        measured.read(tmp_path)
    with pytest.raises(ValueError, match=r"got machine\.json only, expected at least one record"):
        measured.read(folder())
