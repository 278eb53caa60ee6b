"""Exported models run without the project, and report errors."""

import dataclasses
import io
import json
import runpy
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from experiments.exporting import Options, export_model, run_exported
from experiments.exporting.run_exported import Refused
from tests.experiments.exporting import small as small_exports
from tests.experiments.exporting.small import IDS, SUMS, rewritten

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """An artifact of an agent, the shape of its boards, and what the agent itself answers."""
    path = tmp_path_factory.mktemp("agent") / "agent.jaxmodel"
    trained, exportable = small_exports.trained_agent("relational"), small_exports.agent("relational")
    export_model(exportable, path)

    def answers(pictures) -> dict[str, Any]:
        found = jax.jit(trained.agent.apply)({"params": trained.params}, pictures)
        return {name: np.asarray(getattr(found, name)) for name in ("logits", "value")}

    return path, exportable.inputs["observation"].shape[1:], answers


def boards(shape, count):
    return np.random.default_rng(0).integers(0, 256, (count, *shape), np.uint8)


# ---- by itself


def test_a_process_that_can_import_nothing_of_ours_answers(agent):
    path, shape, answers = agent
    pictures = boards(shape, 3)
    requests = [
        {"inputs": {"observation": pictures.tolist()}, "id": "three"},
        {"inputs": {"observation": pictures[0].tolist()}},
        {"inputs": {"observation": pictures[0, 0].tolist()}, "id": 2},
        {"text": "2 + 2"},
    ]
    replies = []
    with small_exports.start_alone(path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in [*map(json.dumps, requests), "{"]:  # each is answered before the next is asked
                process.stdin.write(line + "\n")
                process.stdin.flush()
                replies.append(process.stdout.readline())
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, "")
    three, one, wrong, text, broken = map(json.loads, replies)
    wanted = answers(pictures)
    assert three["id"] == "three"
    for name, array in wanted.items():
        np.testing.assert_allclose(three["outputs"][name], array, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one["outputs"][name], array[0], rtol=1e-5, atol=1e-6)
    actions = np.array(["left", "up", "right", "down"])
    assert three["labels"]["logits"] == actions[wanted["logits"].argmax(-1)].tolist()
    assert wrong["id"] == 2
    assert "observation: got shape" in wrong["error"]
    assert "reads no text" in text["error"]
    assert "error" in broken


@pytest.mark.slow
def test_it_runs_where_there_is_only_jax_and_flatbuffers(agent, tmp_path):
    path, shape, answers = agent
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    versions = [f"{name}=={__import__(name).__version__}" for name in ("jax", "numpy")]
    install = [str(python), "-m", "pip", "install", "--quiet", *versions, "flatbuffers"]
    installed = subprocess.run(install, capture_output=True, text=True, check=False, timeout=600)
    if installed.returncode:
        pytest.skip(f"pip could not install JAX: {installed.stderr.strip().splitlines()[-1:]}")
    shutil.copyfile(path, tmp_path / "agent.jaxmodel")
    pictures = boards(shape, 2)
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    ).stdout
    assert "flax" not in listed
    assert "safetensors" not in listed
    done = subprocess.run(
        [str(python), "-I", "agent.jaxmodel"],
        cwd=tmp_path,
        input=json.dumps({"inputs": {"observation": pictures.tolist()}}),
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = answers(pictures)
    for name, array in json.loads(done.stdout)["outputs"].items():
        np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)


def test_the_artifact_is_a_program_itself(sums, monkeypatch, capsys):
    """Python runs the archive's copy of the runner, for which the artifact is no argument."""
    monkeypatch.setattr(sys, "argv", [str(sums), "--describe"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(sums), run_name="__main__")
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "sum"
    monkeypatch.setattr("sys.stdin", io.StringIO('{"inputs": {"ids": [1, 2]}}\n'))
    monkeypatch.setattr(sys, "argv", [str(sums)])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(sums), run_name="__main__")
    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["outputs"]["total"] == 16


# ---- answers


def test_shorter_inputs_are_filled_up_and_their_padding_is_not_seen(model):
    outputs = model({"ids": IDS})
    np.testing.assert_array_equal(outputs["each"], 2.0 * IDS)
    np.testing.assert_array_equal(outputs["total"], [22, 40])
    longer = np.ones((1, 6), np.int32)
    assert model({"ids": longer})["each"].shape == (1, 6)
    assert model({"ids": longer, "mask": longer < 1})["total"] == 10
    assert [program.length for program in model.programs] == [4, 8]


def test_the_derivative_is_that_of_the_function(model, monkeypatch):
    ids = np.arange(8, dtype=np.int32).reshape(2, 4)
    cotangents = {"each": np.full((2, 4), 3.0), "total": np.array([1.0, -1.0])}
    found = model.gradient({"ids": ids}, cotangents)
    scale = 3 * ids.sum() + ids[0].sum() - ids[1].sum()
    np.testing.assert_allclose(found["scale"], [[scale]])
    np.testing.assert_allclose(found["offset"], [0])
    with pytest.raises(Refused, match="length: got 3, expected 4"):
        model.gradient({"ids": IDS}, cotangents)
    with pytest.raises(Refused, match=r"cotangents: got \['each'\], expected \['each', 'total'\]"):
        model.gradient({"ids": ids}, {"each": cotangents["each"]})
    with pytest.raises(Refused, match=r"cotangent total: got shape \(3,\), expected \(2,\)"):
        model.gradient({"ids": ids}, cotangents | {"total": np.zeros(3)})
    monkeypatch.setitem(model.manifest, "derivative", False)
    with pytest.raises(Refused, match="the model has no derivative; export it with --derivative"):
        model.gradient({"ids": ids}, cotangents)


def test_a_batch_may_be_fixed_and_the_devices_a_mesh(tmp_path):
    path = tmp_path / "sums.jaxmodel"
    export_model(SUMS, path, Options(batch=4, lengths=(4,), sharding={"data": 1}))
    model = run_exported.load(path)
    assert (model.batch_room, model.batch_step) == (4, 1)
    ids = np.arange(12, dtype=np.int32).reshape(3, 4)
    found = run_exported.answer(model, {"inputs": {"ids": ids.tolist()}})
    assert found["outputs"]["total"] == [22, 54, 86]
    with pytest.raises(Refused, match="batch: got 5 rows, expected at most 4"):
        run_exported.answer(model, {"inputs": {"ids": [[1, 2, 3, 4]] * 5}})


def of_inputs(symbols, **inputs):
    """A model that computes nothing, with programs for the lengths 4 and 8."""
    plain = {"dtype": "int32", "default": None, "pad": None, "range": None, "split": []}
    manifest = {
        "inputs": [{"name": name, **plain, **fields} for name, fields in inputs.items()],
        "symbols": symbols,
        "text": None,
        "sharding": {"axes": {}},
        "programs": [],
        "weights": {"split": {}},
    }
    model = run_exported.Model(manifest, {}, None)
    nothing: Any = None
    model.programs = [run_exported.Program(length, nothing, nothing, nothing) for length in (4, 8)]
    return model


def test_sizes_are_bounded_and_only_lengths_are_filled_up():
    """A batch is a multiple of the devices along data, with as many rows for each as the model asks for."""
    model = of_inputs(
        {"batch": (3, None), "length": (2, 5)},
        x={"shape": ["2*batch", "length"], "pad": 7},
        y={"shape": ["2*batch"]},
    )
    for rows, length in ((6, 5), (8, 2)):
        x, y = np.ones((rows, length), np.int32), np.ones(rows, np.int32)
        program, arrays, room = model.prepare({"x": x, "y": y})
        assert room == (length, program.length)
        assert (arrays["x"][:, :length] == 1).all()
        assert (arrays["x"][:, length:] == 7).all()
        assert arrays["x"].shape == (rows, program.length)
        np.testing.assert_array_equal(arrays["y"], y)
    for rows, length, message in (
        (4, 5, "batch: got 4, expected 6 or more"),
        (7, 5, "batch: got 7, expected a multiple of 2, the devices along data"),
        (6, 6, "length: got 6, expected 2 to 5"),
        (6, 1, "length: got 1, expected 2 to 5"),
    ):
        x, y = np.ones((rows, length), np.int32), np.ones(rows, np.int32)
        with pytest.raises(Refused, match=message):
            model.prepare({"x": x, "y": y})


def test_what_cannot_be_filled_up_has_the_length_of_a_program():
    model = of_inputs({"length": (1, None)}, x={"shape": ["length"]})
    assert model.prepare({"x": np.ones(4, np.int32)})[2] is None
    with pytest.raises(Refused, match="input x: got length 5, expected one of 4, 8, since it cannot be padd"):
        model.prepare({"x": np.ones(5, np.int32)})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"id": IDS}, "inputs: got 'id', expected names among ids, mask"),
        ({"mask": IDS > 0}, "inputs: got no 'ids', expected ids"),
        ({"ids": IDS.astype(np.int64)}, "input ids: got dtype int64, expected int32"),
        ({"ids": (IDS - 1) * 20}, "input ids: got the value 100, expected 0 to 99"),
        ({"ids": IDS - 3}, "input ids: got the value -2, expected 0 to 99"),
        ({"ids": IDS[0]}, r"input ids: got shape \[3\], expected \[batch, length\]"),
        ({"ids": IDS, "mask": IDS[:1] > 0}, r"mask: got shape \[1, 3\], .* with batch = 2, with length = 3"),
        ({"ids": np.ones((1, 9), np.int32)}, "length: got 9, expected at most 8"),
        ({"ids": IDS[:0]}, "batch: got 0, expected 1 or more"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(model, inputs, message):
    with pytest.raises(Refused, match=message):
        model(inputs)


# ---- refused


def test_a_damaged_file_is_refused_wherever_the_damage_is(sums, tmp_path):
    content = sums.read_bytes()
    manifest, members = run_exported.read_artifact(sums)
    damaged = tmp_path / "damaged.jaxmodel"
    noticed = 0
    places = np.linspace(0, len(content) - 1, 150).astype(int)
    for place in (*places, *range(len(content) - 40, len(content))):
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        damaged.write_bytes(flipped)
        try:
            found = run_exported.read_artifact(damaged)
        except Refused:
            noticed += 1
        else:  # a date or another field that nothing reads
            assert found == (manifest, members)
    assert noticed > 150
    for size in (0, 10, len(content) // 2, len(content) - 1):
        damaged.write_bytes(content[:size])
        with pytest.raises(Refused, match="damaged"):
            run_exported.load(damaged)
    with pytest.raises(Refused, match="no such file"):
        run_exported.load(tmp_path / "nothing.jaxmodel")


def test_a_changed_program_is_refused_though_the_archive_is_whole(sums, tmp_path):
    def change(manifest):
        manifest["members"]["program-4.bin"]["sha256"] = "0" * 64

    with pytest.raises(Refused, match=r"the SHA-256 of program-4.bin does not match"):
        run_exported.load(rewritten(sums, tmp_path / "a.jaxmodel", change))

    def forget(manifest):
        del manifest["members"]["program-8.bin"]

    with pytest.raises(Refused, match=r"got member program-8.bin, expected only members of the manifest"):
        run_exported.load(rewritten(sums, tmp_path / "b.jaxmodel", forget))

    def age(manifest):
        manifest["format_version"] = 0

    with pytest.raises(Refused, match=r"got format .*, expected"):
        run_exported.load(rewritten(sums, tmp_path / "c.jaxmodel", age))


def test_what_is_wrong_is_one_line_and_status_2(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.jaxmodel").write_bytes(b"nothing")
    assert run_exported.main([str(tmp_path / "a.jaxmodel")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    for wrong in (
        ["--input=a.npz"],
        ["--input=a.npz", "--output=b.npz", "--batch=0"],
        ["--keep-blocks=-1"],
        ["--keep-blocks=2048"],
    ):
        with pytest.raises(SystemExit):
            run_exported.main(["a.jaxmodel", *wrong])
    monkeypatch.setattr(run_exported, "keep_large_blocks", lambda limit: False)
    for allowed in ("--batch=1", "--keep-blocks=0", "--keep-blocks=2047"):
        assert run_exported.main([str(tmp_path / "a.jaxmodel"), allowed]) == 2  # for the file
    capsys.readouterr()


def test_options_of_the_command_line_are_passed_on(monkeypatch, capsys):
    calls = []

    def called(name, returned):
        return lambda *given, **options: calls.append((name, given, options)) or returned

    for name, returned in (("load", "model"), ("keep_large_blocks", True), ("answer_file", 5)):
        monkeypatch.setattr(run_exported, name, called(name, returned))
    given = ["--input=a.npz", "--output=b.npz", "--batch=3", "--any-version", "--keep-blocks=7"]
    assert run_exported.main(["a.jaxmodel", *given]) == 0
    assert calls == [
        ("keep_large_blocks", (7,), {}),
        ("load", (Path("a.jaxmodel"),), {"any_version": True}),
        ("answer_file", ("model", Path("a.npz"), Path("b.npz"), 3), {}),
    ]
    assert capsys.readouterr().out == "b.npz: 5 results\n"


def test_a_vocabulary_is_described_by_its_size(sums, tmp_path, capsys):
    def add(manifest):
        manifest["text"] = {"kind": "wordpieces", "vocabulary": ["[PAD]", "cat", "dog"]}

    assert run_exported.main([str(rewritten(sums, tmp_path / "a.jaxmodel", add)), "--describe"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == {"kind": "wordpieces", "vocabulary": "3 pieces"}


# ---- weights


@pytest.mark.parametrize("where", ["beside", "constants"])
def test_weights_may_be_elsewhere(where, tmp_path):
    path = tmp_path / "sums.jaxmodel"
    export_model(dataclasses.replace(SUMS, lengths=(4,)), path, Options(weights=where, derivative=True))
    found = run_exported.load(str(path))
    assert found({"ids": IDS})["total"].tolist() == [22, 40]
    separate = tmp_path / "sums.safetensors"
    assert separate.exists() == (where == "beside")
    if where == "constants":
        with pytest.raises(Refused, match="weights are constants"):
            found.gradient({"ids": IDS}, {})
        return
    np.testing.assert_array_equal(safetensors.numpy.load_file(separate)["scale"], [[2.0]])
    content = separate.read_bytes()
    separate.write_bytes(content[:-1] + b"\x01")
    with pytest.raises(Refused, match=r"sums.safetensors: damaged, or of another model"):
        run_exported.load(path)
    separate.unlink()
    with pytest.raises(Refused, match="no such file, expected the weights"):
        run_exported.load(path)


def test_safetensors_are_read_as_the_library_reads_them():
    names = ("float32", "bfloat16", "float16", "int32", "int64", "uint8", "bool")
    arrays = {name: np.asarray(jnp.arange(6).reshape(2, 3).astype(name)) for name in names if name != "int64"}
    arrays["int64"] = np.arange(3)
    arrays["scalar"] = np.array(3.5, np.float32)
    arrays["empty"] = np.zeros((0, 2), np.float32)
    found = run_exported.read_weights(safetensors.numpy.save(arrays, {"a": "b"}))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)
