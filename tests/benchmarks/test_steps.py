"""Training steps measured: counts, metrics and failed cases; a record that is complete after every row."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import optax
import pytest

from benchmarks import accelerator_summary, launching, steps, training
from experiments.registry import EXPERIMENTS
from kernels import tables


def step(params, state, batch):
    gradient = jax.grad(lambda params: jnp.sum((batch @ params) ** 2))(params)
    return params - 1e-3 * gradient, state + 1


def test_a_step_is_measured():
    batch, carried = jnp.ones((6, 5)), (jnp.ones((5, 4)), jnp.int32(0))
    operations = steps.counted(step, *carried, batch)
    assert operations == 2 * (2 * 6 * 5 * 4)  # forward, and the gradient of the parameters
    row = steps.measure(
        steps.compiling(step, carried, (batch,)),
        carried,
        (batch,),
        seconds=1e-3,
        count={"rows": 6},
        operations=operations,
        rate=1e9,
    )
    assert row["seconds"]["least"] <= row["seconds"]["median"] <= row["seconds"]["greatest"]
    assert row["rows_per_second"] == pytest.approx(6 / row["seconds"]["median"])
    assert row["utilisation"] == pytest.approx(operations / row["seconds"]["median"] / 1e9)
    assert row["peak_bytes"] >= row["temporary_bytes"] + batch.nbytes
    assert "rows/s" in accelerator_summary.training({"name": "step", **row})


def test_a_training_step_is_that_of_gradient_descent():
    """Its loss's contractions are counted, or those of another one."""

    def loss(params, batch):
        return jnp.mean((batch @ params) ** 2)

    def twice(params, batch):
        return loss(params, batch) + loss(2 * params, batch)

    given = (jnp.ones((6, 5)),)
    options = {"seconds": 1e-3, "count": {}, "rate": 1e9}
    rows = [
        steps.measure_training(loss, optax.sgd(0.1), jnp.ones((5, 4)), given, counted_loss=other, **options)
        for other in (None, twice)
    ]
    assert [row["parameters"] for row in rows] == [20, 20]
    assert rows[1]["gflop_a_call"] == pytest.approx(2 * rows[0]["gflop_a_call"]) == 2 * 480e-9


def test_a_measurement_may_be_several_rows(monkeypatch):
    monkeypatch.setattr(steps, "matrix_rate", lambda size, seconds, dtype: 2.0)
    cases = {"both": ("float32", ("a", "b"))}
    found = steps.rows(
        cases, lambda names, rate, seconds: [{"name": x} for x in names], matrix=1, seconds=0.1, budget=0
    )
    assert [row["name"] for row in found][1:] == ["a", "b"]


def test_every_module_is_of_an_experiment():
    rooms = launching.chosen(training, [])
    assert set(rooms) <= set(EXPERIMENTS)
    for room in rooms.values():
        assert room.cases()


def test_memory_that_is_reused_counts_once():
    sizes = {"argument": 10, "output": 7, "alias": 6, "temp": 100}
    memory = SimpleNamespace(**{f"{name}_size_in_bytes": size for name, size in sizes.items()})
    assert steps.peak_bytes(memory) == 111
    assert steps.peak_bytes(None) is None


def test_what_is_counted_is_the_plain_path_whatever_is_fastest_here(monkeypatch):
    """A kernel that is the default would hide its contractions."""
    seen = []

    def function(x):
        seen.append(tables.fastest_anywhere("trans"))
        return x @ x

    monkeypatch.setattr(tables, "read", lambda: {"chip": {"fastest": [{"operation": "trans"}], "blocks": []}})
    assert steps.counted(function, jnp.ones((3, 3))) == 54
    assert seen == [False]
    assert tables.fastest_anywhere("trans")


def test_a_loop_of_unknown_length_cannot_be_counted():
    def function(x):
        return jax.lax.while_loop(lambda x: x.sum() > 0, lambda x: x @ x, x)

    assert steps.counted(function, jnp.ones((3, 3))) is None
    row = {"name": "loop", "rows_per_second": 5.0, "utilisation": None, "peak_bytes": None}
    assert accelerator_summary.training(row).split() == ["loop", "5", "rows/s"]


def test_rows_go_on_after_one_that_fails_and_end_with_the_budget(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(steps.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        steps, "matrix_rate", lambda size, seconds, dtype: {"float32": 2.0, "bfloat16": 4.0}[dtype]
    )

    def measure(case, rate, seconds):
        now[0] += 10
        if case == "bad":
            raise RuntimeError("RESOURCE_EXHAUSTED: no room\nand more")
        return {"case": case, "rate": rate}

    cases = {
        "a": ("float32", "good"),
        "b": ("float32", "bad"),
        "c": ("bfloat16", "good"),
        "d": ("float32", "good"),
    }
    found = list(steps.rows(cases, measure, matrix=1, seconds=0.1, budget=25))
    assert [row["name"].split()[0] for row in found] == ["product", "a", "b", "product", "c", "d"]
    assert [row.get("rate") for row in found] == [None, 2.0, None, None, 4.0, None]
    assert found[2]["failed"] == "RuntimeError: RESOURCE_EXHAUSTED: no room"
    assert found[-1]["failed"] == "not started: budget spent"
    assert found[2]["failed"] in accelerator_summary.training(found[2])


def test_the_record_is_whole_after_every_row(tmp_path, capsys):
    out = tmp_path / "new" / "record.json"
    whole = []

    def rows():
        for number in range(3):
            whole.append(json.loads(out.read_text())["rows"] if out.exists() else [])
            yield {"number": number}

    found = launching.record(rows(), lambda row: f"row {row['number']}", str(out), "python -m this")
    assert [len(rows) for rows in whole] == [0, 1, 2]
    record = json.loads(out.read_text())
    assert record["rows"] == found == [{"number": 0}, {"number": 1}, {"number": 2}]
    assert record["command"] == "python -m this"
    assert {"devices", "versions", "date", "commit"} <= record.keys()
    assert capsys.readouterr().out.splitlines() == ["row 0", "row 1", "row 2"]
    assert list(out.parent.iterdir()) == [out]


def test_the_rate_is_that_of_a_product():
    assert steps.matrix_rate(8, 1e-3, "float32") > 0
    assert "TFLOP/s" in accelerator_summary.training({"name": "product", "operations_per_second": 1e12})
