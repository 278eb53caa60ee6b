"""What the README tells people to type works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from llrnn import logic

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHORT = (
    "steps=2", "log_every=1", "checkpoint_every=1", "eval_every=1", "eval_examples=2", "final_examples=2",
    "batch_size=4", "baseline.name=none",
)  # fmt: skip


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_python_blocks_run_and_say_what_is_true(capsys):
    x, v = jax.random.normal(jax.random.key(1), (2, 5, 5))
    names: dict[str, object] = {"key": jax.random.key(0), "x": jnp.ones((2, 3, 4)), "v": v}
    pairs, one_module, proof, programs = blocks("python")
    exec(pairs, {"jax": jax, **names}, attended := {})
    assert jnp.shape(attended["attended"]) == (2, 40, 1, 48)
    exec(one_module, names)
    exec(proof, names)
    rnn = nn.RNN(cast(nn.RNNCellBase, names["cell"]))
    inputs = jnp.ones((2, 3, 4))
    outputs = rnn.apply(rnn.init(jax.random.key(0), inputs), inputs)
    assert jnp.shape(cast(jax.Array, outputs)) == (2, 3, 32)
    names["x"] = x
    exec(programs, names)
    cube = logic.numeral(3, cast(logic.Atom, names["A"]))
    found = logic.matrix(logic.denote(logic.derivative(cube))(x, v), 5)
    np.testing.assert_allclose(found, jax.jvp(lambda x: x @ x @ x, (x,), (v,))[1], rtol=1e-4, atol=1e-4)
    assert "-oL" in capsys.readouterr().out


def commands():
    text = "".join(blocks("")).replace("\\\n", " ")
    return [line for line in text.splitlines() if "-m experiments." in line]


@pytest.mark.parametrize("command", commands(), ids=lambda command: command.split("=")[-1])
def test_commands_run(command, tmp_path):
    arguments = shlex.split(command)[1:]
    arguments = [argument for argument in arguments if not argument.startswith("--workdir")]
    run = subprocess.run(
        [sys.executable, *arguments, *(f"--config.{field}" for field in SHORT), f"--workdir={tmp_path}/run"],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "run" / "summary.json").exists()


def test_links_lead_somewhere():
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", README) if "://" not in target]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_files_named_in_the_tables_exist():
    named = re.findall(r"`((?:llrnn|docs|experiments|benchmarks|results)/[\w/.]+)`", README)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)", README)) <= targets
