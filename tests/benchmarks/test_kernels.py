"""Measuring, checking and tuning kernels, on shapes that take a moment."""

import contextlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import kernel_cases, kernel_checks, kernels, timing, tune_kernels
from kernels.trans import shapes as trans_shapes
from kernels.trilinear import shapes as trilinear_shapes
from kernels.two_simplicial import shapes as two_simplicial_shapes

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SMALL = {
    "two_simplicial": kernel_cases.two_simplicial(two_simplicial_shapes.ODD, jnp.float32),
    "signed": kernel_cases.two_simplicial(two_simplicial_shapes.ODD, jnp.float32, "signed"),
    "trans": kernel_cases.trans(trans_shapes.SMALL[2], jnp.float32),
    "trilinear": kernel_cases.trilinear(trilinear_shapes.SMALL[3], jnp.float32),
    "all pairs": kernel_cases.trilinear(trilinear_shapes.SMALL[1], jnp.float32),
}


@pytest.mark.usefixtures("drawn_by_numpy")
@pytest.mark.parametrize("name", SMALL)
def test_baselines_compute_the_same(name):
    """A ratio to something else would mean nothing."""
    case = SMALL[name]

    @jax.jit
    def compute(arrays):
        return case.function("forward", "reference")(*arrays), {
            baseline: case.baseline("forward", baseline)(*case.arrays_of(baseline, arrays))
            for baseline in case.baselines
        }

    want, found = compute(case.draw())
    for baseline, got in found.items():
        got = np.moveaxis(got, -1, 1) if baseline in case.layout else got
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=baseline)


def test_a_measured_row():
    row = kernels.measure(SMALL["trans"], "both", blocks=2, block_seconds=0.01)
    assert set(row["paths"]) == {"xla", "[B,T,T,H] einsum", "head-major einsum"}
    assert row["paths"]["xla"]["seconds"] > 0
    assert row["paths"]["xla"]["speedup"]["head-major einsum"]["median"] > 0
    assert "head-major" in kernels.lines(row)


def test_the_chip_is_used_only_in_turns(monkeypatch):
    """Else a process draws arrays or converts them while another one times."""
    turns, used = [], []

    @contextlib.contextmanager
    def turn(*, alone):
        turns.append(alone)
        yield
        turns.pop()

    def watch(method):
        def watched(*arguments, **options):
            used.append((method.__name__, *turns))
            return method(*arguments, **options)

        monkeypatch.setattr(kernel_cases.Case, method.__name__, watched)

    monkeypatch.setattr(timing, "turn", turn)
    watch(kernel_cases.Case.draw)
    watch(kernel_cases.Case.arrays_of)
    kernels.measure(SMALL["trans"], "forward", blocks=1, block_seconds=0.01)
    assert set(used) == {("draw", False), ("arrays_of", False)}


@pytest.mark.parametrize(
    ("program", "out"), [(kernels, "out=a.json"), (kernel_checks, "out=a.json"), (tune_kernels, "folder=.")]
)
def test_a_name_that_chooses_nothing_is_a_mistake(program, out, tmp_path, monkeypatch, capsys):
    """No record is written in place of an older one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [program.__name__, "--only=tarns", f"--{out}"])
    with pytest.raises(SystemExit) as end:
        program.main()
    assert end.value.code == 2
    assert "--only: got 'tarns', expected a part of an operation or a case" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_path_that_fails_is_a_finding(monkeypatch):
    monkeypatch.setitem(kernels.IMPLEMENTATIONS, "cpu", ("gpu", "xla"))
    row = kernels.measure(SMALL["trans"], "forward", blocks=1, block_seconds=0.01)
    assert "NotImplementedError" in row["paths"]["gpu"]["failed"]
    assert row["paths"]["xla"]["seconds"] > 0
    assert "NotImplementedError" in kernels.lines(row)


@pytest.mark.parametrize("names", [["trans"], pytest.param([*SMALL], marks=pytest.mark.slow)])
def test_checks_hold_here(names):
    for name in names:
        row = kernel_checks.check(SMALL[name], "xla")
        assert row["holds"], row
        assert len(row["errors"]) == 1 + SMALL[name].operation.differentiable
        assert "holds" in kernel_checks.describe(row)


def test_a_wrong_kernel_is_noticed(monkeypatch):
    case = SMALL["trans"]
    right = case.operation.backend("xla").forward
    monkeypatch.setattr(
        case.operation.backend("xla"),
        "forward",
        lambda *a, **k: (1.001 * right(*a, **k)[0], right(*a, **k)[1]),
    )
    row = kernel_checks.check(case, "xla")
    assert not row["holds"]
    assert "WRONG" in kernel_checks.describe(row)


def test_every_shape_is_checked_in_both_types():
    names = [(case.operation.name, case.name) for case in kernel_checks.to_check()]
    assert len(names) == len(set(names))
    for dtype in kernel_checks.TOLERANCE:
        assert sum(name.endswith(dtype) for _, name in names) == len(names) / 2


def test_triples_are_masked_in_a_check():
    case = next(case for case in kernel_checks.to_check() if case.name == "masked triples trilinear float32")
    mask = case.draw()[5]
    assert mask is not None
    assert mask.dtype == bool
    assert 0.6 < mask.mean() < 0.8
    assert kernel_checks.check(case, "xla")["holds"]


def test_tuning_writes_a_table_that_is_read_back(tmp_path):
    line = {
        "operation": "trans",
        "kind": {},
        "sizes": {"X": 8},
        "backend": "xla",
        "direction": "forward",
        "blocks": {"rows": 1},
    }
    path = tune_kernels.write([line], "Some chip", tmp_path)
    tune_kernels.write([{**line, "blocks": {"rows": 2}}, {**line, "sizes": {"X": 9}}], "Some chip", tmp_path)
    table = json.loads(path.read_text())
    assert [row["blocks"] for row in table["blocks"]] == [{"rows": 2}, {"rows": 1}]
    assert table["chip"] == "Some chip"


@pytest.mark.usefixtures("drawn_by_numpy")
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_tuning_tries_the_candidates(direction, monkeypatch):
    """The second of two is twice as fast as the default."""
    tried = []

    def alternate(programs, blocks, **_):
        tried.extend(programs)
        for program in programs.values():
            program()
        return {name: [1.0 / count] * blocks for count, name in enumerate(programs, start=1)}

    monkeypatch.setattr(tune_kernels.timing, "alternate", alternate)
    line = tune_kernels.tune(SMALL["two_simplicial"], "xla", direction, blocks=1)
    assert line is not None
    assert len(tried) == 2
    assert (line["direction"], line["gain"]) == (direction, 2.0)
    assert json.dumps(line["blocks"], sort_keys=True) == tried[1]
