"""From a folder of measurements to what the library does by default."""

import json

import jax.numpy as jnp
import pytest

from benchmarks import collect_kernels, kernel_cases
from kernels.two_simplicial import shapes

CASE = kernel_cases.two_simplicial(shapes.VIRTUAL, jnp.bfloat16)
WHERE = {"date": "2026-11-21", "chip": "Test chip", "platform": "gpu", "versions": {"jax": "0.12"}}


def check(holds=True, dtype="bfloat16", **more):
    row = {"operation": CASE.operation.name, "case": f"tiny {dtype}", "implementation": "gpu"}
    return {**row, "errors": [1e-3], "holds": holds, **more}


def speed(direction, ours=(1.0, 1.1), plain=(2.0, 2.1)):
    paths = {
        "gpu": {"seconds": ours[0], "blocks": list(ours)},
        "xla": {"seconds": plain[0], "blocks": list(plain)},
    }
    return {"operation": CASE.operation.name, "case": CASE.name, "direction": direction, "paths": paths}


@pytest.fixture
def folder(tmp_path):
    """Writes a folder as `benchmarks.accelerator` leaves it, and collects it."""

    def write(checks, rows, **changes):
        measured = tmp_path / "measured"
        measured.mkdir()
        (measured / "checks_a.json").write_text(json.dumps({**WHERE, "rows": checks}))
        (measured / "kernels_a.json").write_text(json.dumps({**WHERE, **changes, "rows": rows}))
        return measured

    return write


def fastest(measured, tmp_path, monkeypatch):
    results, tables = tmp_path / "results", tmp_path / "tables"
    command = ["collect_kernels", str(measured), f"--results={results}", f"--tables={tables}"]
    monkeypatch.setattr("sys.argv", command)
    assert collect_kernels.main() == 0
    assert json.loads((results / "Test-chip.json").read_text())["chip"] == "Test chip"
    return json.loads((tables / "Test-chip.json").read_text())["fastest"]


def test_a_kernel_that_held_and_was_faster_becomes_the_default(folder, tmp_path, monkeypatch):
    measured = folder([check()], [speed("forward"), speed("both")])
    (line,) = fastest(measured, tmp_path, monkeypatch)
    assert (line["operation"], line["backend"]) == (CASE.operation.name, "gpu")
    assert line["sizes"]["N"] == 1024
    assert line["record"].endswith("Test-chip.json")


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
def test_nothing_else_does(folder, tmp_path, monkeypatch, checks, rows):
    assert fastest(folder(checks, rows), tmp_path, monkeypatch) == []


def test_records_of_two_machines_are_refused(folder):
    measured = folder([check()], [speed("forward")], chip="Another")
    with pytest.raises(ValueError, match="different machines"):
        collect_kernels.merged(measured)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="0 records of checks"):
        collect_kernels.merged(tmp_path)
