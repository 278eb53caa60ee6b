"""The export program, and exports for more devices than available."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from experiments import export
from experiments.exporting import Options, export_model, run_exported
from experiments.exporting.options import PLATFORMS
from experiments.llrnn import config as llrnn_configs
from experiments.llrnn import train as llrnn
from experiments.llrnn.parts import CellConfig
from tests.experiments.boxworld import small as small_boxworld
from tests.experiments.exporting import small as small_exports

pytestmark = pytest.mark.usefixtures("compiled_quickly")
ROOT = Path(__file__).parents[2]
RELEASED = ROOT / "results" / "boxworld" / "quick_simplicial"


class Flags(SimpleNamespace):
    """Values of flags, with a record of which were given."""

    def __getitem__(self, name):
        return SimpleNamespace(present=name in self.given)


def flags(**given: Any) -> Flags:
    values = {
        "platforms": list(PLATFORMS), "kernels": ["portable"], "weights": "inside", "derivative": False,
        "sharding": "", "length": "", "batch": None,
    }  # fmt: skip
    return Flags(**(values | given), given=given)


def test_flags_are_read():
    assert export.read_options(flags()) == Options()
    options = export.read_options(flags(sharding="data:64,model:4", length="any", batch=128))
    assert (dict(options.sharding), options.lengths, options.batch) == ({"data": 64, "model": 4}, None, 128)
    assert export.read_options(flags(length="34,128")).lengths == (34, 128)
    assert dict(export.read_options(flags(sharding="model:4")).sharding) == {"data": 1, "model": 4}
    options = export.read_options(flags(weights="beside", derivative=True))
    assert (options.weights, options.derivative) == ("beside", True)


def test_the_platforms_are_those_of_the_chips_unless_they_are_given():
    assert export.read_options(flags(kernels=["h200", "v5e", "v6e"])).platforms == ("cuda", "tpu")
    with pytest.raises(ValueError, match="platforms: got cpu, expected cuda for kernels=h200"):
        export.read_options(flags(kernels=["h200"], platforms=["cpu"]))
    with pytest.raises(ValueError, match="kernels: got h100, expected portable, or some of"):
        export.read_options(flags(kernels=["h100"]))


@pytest.mark.parametrize("given", ["x", "34,", "0", "34;35", "any,3"])
def test_other_lengths_are_refused(given):
    if given == "34,":
        assert export.read_lengths(given) == (34,)
        return
    with pytest.raises(
        ValueError, match=f"--length: got '{given}', expected 'any' or numbers such as 34,128"
    ):
        export.read_lengths(given)


def test_the_file_is_named_after_the_run_in_a_directory(tmp_path):
    assert export.target_of("runs/one", "x/agent.jaxmodel") == Path("x/agent.jaxmodel")
    assert export.target_of("runs/one/", str(tmp_path)) == tmp_path / "one.jaxmodel"


def test_what_the_program_exports(tmp_path, monkeypatch, capsys):
    """In this process: what the flags choose, and the line that it prints."""
    values = flags(run="runs/one", to=str(tmp_path), step=3, seed=1, new_tokens=7)
    opened, exported = [], []

    def export_to(model, path, options):
        exported.append((model, options))
        path.write_bytes(bytes(1_500_000))
        return {"kind": "an agent"}

    monkeypatch.setattr(export.flags, "FLAGS", values)
    monkeypatch.setattr(export, "open_model", lambda run, **chosen: opened.append((run, chosen)) or "model")
    monkeypatch.setattr(export, "export_model", export_to)
    export.main()
    assert opened == [("runs/one", {"step": 3, "seed": 1, "new_tokens": 7})]
    assert exported == [("model", Options())]
    where = tmp_path / "one.jaxmodel"
    assert capsys.readouterr().out == f"{where}: an agent, 1.50 MB, for {', '.join(PLATFORMS)}\n"


def program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.export", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


@pytest.mark.slow
def test_the_program_exports_a_released_agent(tmp_path):
    done = program(f"--run={RELEASED}", f"--to={tmp_path}", "--derivative", "--weights=beside")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "quick_simplicial.jaxmodel"
    assert str(path) in done.stdout
    alone = small_exports.run_alone(path, "--describe")
    assert json.loads(alone.stdout)["source"]["step"] == 480
    for wrong, message in (
        ([f"--run={tmp_path}", f"--to={path}"], "no trained model"),
        ([f"--run={RELEASED}", f"--to={path}", "--sharding=rows:2"], "mesh: got 'rows:2'"),
        (
            [f"--run={RELEASED}", f"--to={path}", "--kernels=h200"],
            "got h200, expected portable for this agent",
        ),
        ([f"--run={RELEASED}", f"--to={path}", "--length=7"], "has no length"),
    ):
        done = program(*wrong)
        assert done.returncode != 0
        assert message in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_runs_of_other_experiments_are_opened(tmp_path, boxworld_run, folnet_run):
    """Only the run's directory is given; the parameters match the summary."""
    config = llrnn_configs.get_config("quick")
    for name, value in {"steps": 2, "log_every": 1, "checkpoint_every": 1, "eval_every": 0}.items():
        setattr(config, name, value)
    config.eval_examples = config.final_examples = 2
    config.baseline = CellConfig()
    llrnn.main(config, workdir=tmp_path / "llrnn")
    for run in (tmp_path / "llrnn", folnet_run[1], folnet_run[1] / "baseline"):
        model = export.open_model(run)
        summary = json.loads((run / "summary.json").read_text())
        assert model.source["params_sha256"] == summary["params_sha256"]
        assert model.source["step"] == summary["step"]
    model = export.open_model(boxworld_run[0], seed=1, step=2)
    assert (model.source["step"], model.source["seed"]) == (2, small_boxworld.CONFIG.seed + 1)
    assert model.source["experiment"] == "experiments.boxworld"


# ---- devices that are not here


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "weights"),
    [("agent", "inside"), ("solver", "constants"), ("recurrent", "constants"), ("encoder", "inside")],
)
def test_eight_devices_give_what_one_gives(name, weights, tmp_path):
    exportable = {
        "agent": small_exports.agent,
        "solver": small_exports.solver,
        "recurrent": small_exports.recurrent,
        "encoder": lambda: small_exports.encoder(operators="jmc.atp"),
    }[name]()
    lengths = {"solver": (40,), "recurrent": None}.get(name, ())
    sharding = {"data": 4, "model": 2}
    path = tmp_path / "m.jaxmodel"
    manifest = export_model(exportable, path, Options(sharding=sharding, lengths=lengths, weights=weights))
    assert manifest["sharding"] == {"axes": sharding, "devices": 8}
    assert weights == "constants" or len(manifest["weights"]["split"]) > 3
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {}
    for name, one in exportable.inputs.items():
        sizes = {"batch": 8, "length": 40 if lengths else 16}
        shape = [sizes[size] if isinstance(size, str) else size for size in one.shape]
        low, high = one.range or ((0, 255) if one.dtype == "uint8" else (1, 1))
        inputs[name] = rng.integers(low, high + 1, shape).astype(one.dtype)
    np.savez(tmp_path / "in.npz", **inputs)
    ran = small_exports.run_alone(path, "--input=in.npz", "--output=out.npz", devices=8)
    assert ran.returncode == 0, ran.stderr
    wanted = jax.device_get(jax.jit(exportable.function)(exportable.params, inputs))
    with np.load(tmp_path / "out.npz") as found:
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    five = json.dumps({"inputs": {name: array[:5].tolist() for name, array in inputs.items()}})
    ran = small_exports.run_alone(path, stdin=five, devices=8)
    for name, array in json.loads(ran.stdout)["outputs"].items():
        np.testing.assert_allclose(array, wanted[name][:5], rtol=1e-4, atol=1e-5)
    ran = small_exports.run_alone(path, stdin=five, devices=4)
    assert ran.returncode == 2
    assert "devices: got 4, expected 8 (data:4,model:2)" in ran.stderr


@pytest.mark.slow
def test_two_processes_run_one_artifact_together(tmp_path):
    exportable = small_exports.agent()
    path = tmp_path / "m.jaxmodel"
    export_model(exportable, path, Options(sharding={"data": 4, "model": 2}))
    shape: Any = (8, *exportable.inputs["observation"].shape[1:])
    boards = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    np.savez(tmp_path / "in.npz", observation=boards)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    script = [sys.executable, str(Path(__file__).parent / "exporting/on_processes.py"), str(path)]
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    processes = [
        subprocess.Popen(
            [*script, str(tmp_path / "in.npz"), address, "2", str(number)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        ends = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    wanted = jax.device_get(jax.jit(exportable.function)(exportable.params, {"observation": boards}))
    for process, (output, errors) in zip(processes, ends, strict=True):
        assert process.returncode == 0, errors
        for name, array in json.loads(output.splitlines()[-1]).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)


def test_a_batch_that_the_devices_do_not_divide_is_refused(tmp_path):
    path = tmp_path / "m.jaxmodel"
    manifest = export_model(small_exports.SUMS, path, Options(sharding={"data": 64, "model": 4}))
    assert manifest["sharding"]["devices"] == 256
    with pytest.raises(run_exported.Refused, match=r"devices: got 1, expected 256 \(data:64,model:4\)"):
        run_exported.load(path)
    model = run_exported.Model.__new__(run_exported.Model)
    model.manifest, model.inputs = manifest, {one["name"]: one for one in manifest["inputs"]}
    with pytest.raises(run_exported.Refused, match="batch: got 96, expected a multiple of 64"):
        model.prepare({"ids": np.ones((96, 4), np.int32)})
    assert (model.batch_step, model.batch_room) == (64, None)
