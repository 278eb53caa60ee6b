"""The program that converts checkpoints, from the command line; its errors for unsuitable files."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest

import folnet
from experiments.folnet_pretrain import convert
from experiments.runtime import torch_files
from tests.folnet import small

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "tests" / "folnet" / "data" / "folnet_join_assoc.npz"


@pytest.fixture
def theirs(tmp_path):
    """Returns the prefix of the authors' two files, their state dict, and the recorded outputs."""
    with np.load(RECORDED) as archive:
        arrays = dict(archive)
    prefix = tmp_path / "folnet_small"
    prefix.with_suffix(".cfg").write_text(str(arrays["config"]))
    state = {
        name.removeprefix("pretraining/"): array
        for name, array in arrays.items()
        if name.startswith("pretraining/")
    }
    torch_files.save(prefix.with_suffix(".pt"), state)
    return prefix, state, arrays


def count(state):
    """Counts the numbers in a state dict, with the tied embeddings once."""
    return sum(array.size for name, array in state.items() if not name.endswith("decoder.weight"))


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "experiments.folnet_pretrain.convert", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_checkpoint_is_converted_from_the_command_line(theirs, tmp_path):
    """To the parameters with which the recorded logits are compared in tests/folnet."""
    prefix, state, _ = theirs
    done = run(prefix, tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'ours'}: FOLNetForPreTraining, {count(state):,} parameters\n"
    found = folnet.FOLNetForPreTraining.from_pretrained(tmp_path / "ours")
    model, params = small.recorded_model("folnet_join_assoc", folnet.FOLNetForPreTraining)
    assert found[0] == model
    jax.tree.map(np.testing.assert_array_equal, found[1], params)


def test_there_and_back_in_files(theirs, tmp_path):
    """A round trip preserves every number of the authors' file and their settings."""
    prefix, state, arrays = theirs
    convert.from_authors(str(prefix), str(tmp_path / "ours"))
    said = convert.to_authors(str(tmp_path / "ours"), str(tmp_path / "new" / "back"))
    assert said.endswith(f"back.pt: FOLNetForPreTraining, {count(state):,} parameters")
    back = torch_files.read_state_dict(tmp_path / "new" / "back.pt")
    assert set(back) == set(state)
    for name, array in state.items():
        np.testing.assert_array_equal(back[name], array)
    settings = json.loads((tmp_path / "new" / "back.cfg").read_text())
    assert settings["mixer_ops"] == json.loads(str(arrays["config"]))["mixer_ops"]


def test_a_class_can_be_asked_for(theirs, tmp_path):
    """Tensors that the class has no place for are listed."""
    said = convert.from_authors(str(theirs[0]), str(tmp_path / "ours"), "FOLNet")
    assert "FOLNet, " in said
    assert "skipped tensors of other heads: cls.heads.predictions.bias, " in said
    with pytest.raises(ValueError, match="ours: got a 'FOLNetForCausalLM', expected one of 'FOLNet"):
        convert.to_authors(str(tmp_path / "ours"), str(tmp_path / "back"), "FOLNetForCausalLM")


def test_nothing_is_replaced(theirs, tmp_path):
    """Existing files are never overwritten, neither a model nor the authors' files."""
    prefix = str(theirs[0])
    convert.from_authors(prefix, str(tmp_path / "ours"))
    with pytest.raises(
        ValueError, match=r"config.json, .*model.safetensors, .*modeling_folnet.py: already exists"
    ):
        convert.from_authors(prefix, str(tmp_path / "ours"))
    with pytest.raises(ValueError, match=r"folnet_small.cfg, .*folnet_small.pt: already exists"):
        convert.to_authors(str(tmp_path / "ours"), prefix)


def test_files_that_are_missing_or_damaged(theirs, tmp_path):
    """The error names the file, and nothing is written."""
    prefix, ours = theirs[0], str(tmp_path / "ours")
    with pytest.raises(ValueError, match=r"nothing.cfg: file not found"):
        convert.from_authors(str(tmp_path / "nothing"), ours)
    settings = prefix.with_suffix(".cfg")
    text = settings.read_text()
    for wrong, message in (("{", "Expecting property name"), ("[]", r"got \[\], expected a JSON object")):
        settings.write_text(wrong)
        with pytest.raises(ValueError, match=rf"folnet_small.cfg: {message}"):
            convert.from_authors(str(prefix), ours)
    settings.write_text(text.replace('"head_size"', '"head_sizes"'))
    with pytest.raises(ValueError, match=r"(?s)folnet_small.cfg: config: does not fit.*head_sizes: unknown"):
        convert.from_authors(str(prefix), ours)
    settings.write_text(text)
    prefix.with_suffix(".pt").write_bytes(b"not a file of PyTorch")
    with pytest.raises(ValueError, match=r"folnet_small.pt: cannot be read"):
        convert.from_authors(str(prefix), ours)
    assert not Path(ours).exists()
    with pytest.raises(ValueError, match=r"config.json: got no such file"):
        convert.to_authors(ours, str(tmp_path / "back"))


def test_mistakes_on_the_command_line(theirs, tmp_path, monkeypatch, capsys):
    """They are named; `--reverse` and `--model` are passed on."""
    values = types.SimpleNamespace(reverse=False, model=None)
    monkeypatch.setattr(convert.flags, "FLAGS", values)
    with pytest.raises(ValueError, match=r"a\.cfg: file not found"):
        convert.main(str(tmp_path / "a"), str(tmp_path / "b"))
    values.model = "FOLNet"
    convert.main(str(theirs[0]), str(tmp_path / "ours"))
    assert "ours: FOLNet, " in capsys.readouterr().out
    values.reverse, values.model = True, None
    with pytest.raises(ValueError, match=r"folnet_small\.pt: already exists"):
        convert.main(str(tmp_path / "ours"), str(theirs[0]))
