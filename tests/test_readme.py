"""What the README tells people to type works."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from experiments.runtime import torch_files
from folnet import FOLNetConfig, FOLNetForPreTraining
from folnet import convert as folnet_convert
from llrnn import logic
from tp_transformer import TPTransformer, convert, greedy_decode, mathematics

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
STEPS = ("steps=2", "log_every=1", "checkpoint_every=1", "eval_every=1")
SHORT = {
    "experiments.llrnn": (
        *STEPS, "eval_examples=2", "final_examples=2", "batch_size=4", "baseline.name=none",
    ),
    "experiments.boxworld": (
        *STEPS, "batch_size=8", "updates=1", "unroll=4", "eval_episodes=2", "final_episodes=1",
        "agent.features=6", "agent.two_simplicial_features=3", "agent.head_features=(6,)",
    ),
    "experiments.mathematics": (
        *STEPS, "batch_size=8", "data.train=60", "data.test=4", "model.features=16",
        "model.filter_features=16", "model.num_heads=2",
        "model.num_layers=1", "eval_batch_size=4", "role_questions=4", "role_clusters=2",
    ),
    "experiments.folnet_pretrain": (
        *STEPS, "batch_size=8", "data.length=16", "model.hidden_size=16", "model.num_hidden_layers=1",
        "model.relation_size=4", "model.num_attention_heads=2", "model.head_size=4",
        "model.intermediate_size=16", "model.relation_intermediate_size=8", "baseline=none",
    ),
    "experiments.folnet_language": (
        *STEPS, "batch_size=8", "data.length=16", "model.hidden_size=16", "model.num_hidden_layers=1",
        "model.relation_size=4", "model.num_attention_heads=2", "model.head_size=4", "samples=0",
        "model.intermediate_size=16", "model.relation_intermediate_size=8",
    ),
    "experiments.kinship": (
        *STEPS, "batch_size=8", "baselines=()", "match=", "sizes.hidden_size=8", "sizes.relation_size=4",
        "sizes.num_hidden_layers=1", "sizes.num_attention_heads=2", "sizes.head_size=4",
        "sizes.intermediate_size=8", "sizes.relation_intermediate_size=4", "data.test_problems=2",
    ),
    "experiments.reasoning": (
        *STEPS, "batch_size=8", "features=8", "num_layers=1", "num_heads=2", "hidden=8", "length=16",
    ),
}  # fmt: skip
"""What makes a training run short."""
TESTED = tuple(
    f"experiments.{name}"
    for name in (
        "boxworld",
        "boxworld.analysis",
        "boxworld.play",
        "folnet_language",
        "folnet_pretrain",
        "kinship",
        "llrnn",
        "mathematics",
        "reasoning",
    )
)
"""Whose `main` other tests run."""


def blocks(language, page=README):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [text for named, text in found if named == language]


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_python_blocks_run_and_say_what_is_true(capsys, tmp_path, monkeypatch):
    names: dict[str, object] = {"key": jax.random.key(0), "jax": jax}
    entities, roles, relations, proof, pairs, shipped = blocks("python")
    tokens = jnp.ones((2, 5, 64))
    exec(entities, {"tokens": tokens, **names}, made := {})
    assert jnp.shape(made["stack"].apply(made["params"], tokens)) == (2, 5, 64)
    assert not made["outcome"].terminated
    released = mathematics.Vocabulary.released()
    model = TPTransformer(
        vocab_size=released.size, features=16, filter_features=8, num_heads=8, num_layers=1, pad=released.pad
    )
    source = jnp.asarray([[3, 4, 0]])
    params = model.init(jax.random.key(0), source, source)["params"]
    monkeypatch.chdir(tmp_path)
    torch_files.save("best_eval_model.pt", convert.to_torch(model, params))
    exec(roles, answered := {})
    assert answered["model"].pad == released.pad
    assert jnp.shape(answered["answer"]) == (1, 32)
    assert answered["answer"][0, 0] == released.start
    asked = released.encode_batch(["What is 2 + 2?"], 20)
    want = greedy_decode(
        model, params, asked, max_length=31, start=released.start, end=released.end
    )  # before its conversion
    np.testing.assert_array_equal(answered["answer"], want)
    small = FOLNetConfig(
        vocab_size=8,
        hidden_size=8,
        relation_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        head_size=4,
        intermediate_size=8,
        relation_intermediate_size=8,
    )
    texts = jnp.asarray([[1, 2, 3]])
    params = FOLNetForPreTraining(small).init(jax.random.key(0), texts)["params"]
    config, weights = folnet_convert.to_torch(small, params)
    given = {"released_config": config, "released_weights": weights, "input_ids": texts}
    exec(relations, {**names, **given}, deduced := {})
    assert jnp.shape(deduced["out"].prediction_logits) == (1, 3, 8)
    exec(proof, names)
    rnn = nn.RNN(cast(nn.RNNCellBase, names["cell"]))
    inputs = jnp.ones((2, 3, 4))
    outputs = rnn.apply(rnn.init(jax.random.key(0), inputs), inputs)
    assert jnp.shape(cast(jax.Array, outputs)) == (2, 3, 32)
    H = logic.Atom("H", 32)
    assert capsys.readouterr().out == f"{logic.check(logic.evaluate(H))}\n"
    exec(pairs, names, attended := {})
    assert jnp.shape(attended["attended"]) == (2, 40, 1, 48)
    monkeypatch.chdir(ROOT)
    exec(shipped, opened := {})
    boards = {"observation": jnp.zeros((2, *opened["model"].inputs["observation"].shape[1:]), jnp.uint8)}
    assert opened["model"].function(opened["model"].params, boards)["logits"].shape == (2, 4)


def commands():
    text = "".join(blocks("") + blocks("", PROGRAMS)).replace("\\\n", " ")
    return [line for line in text.splitlines() if "-m experiments." in line]


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A folder that holds what the wheel installs, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder / "site", "zip")
    return folder / "site"


def run(arguments, installed, folder):
    """Runs a command in a folder, where only the wheel is installed."""
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(installed),
            "JAX_PLATFORMS": "cpu",
            "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiling is most of it
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def marked():
    """Every command; those whose program another one has run already, or other tests run, are slow."""
    programs = [command.split()[2] for command in commands()]
    for index, command in enumerate(commands()):
        tested = programs[index] in TESTED
        again = programs[index] in programs[:index] or tested
        yield pytest.param(command, marks=pytest.mark.slow) if again else command


@pytest.mark.parametrize("command", list(marked()), ids=lambda command: command.split("#")[0].split("=")[-1])
def test_commands_run_from_an_empty_folder_with_the_wheel(command, installed, tmp_path):
    empty = tmp_path / "empty"
    arguments = shlex.split(command, comments=True)[1:]
    program = arguments[1]
    arguments = [argument for argument in arguments if not argument.startswith(("--workdir", "--out"))]
    if program in SHORT:
        fields = (f"--config.{field}" for field in SHORT[program])
        ended = run([*arguments, *fields, f"--workdir={tmp_path}/run"], installed, empty)
        assert ended.returncode == 0, ended.stderr
        assert (tmp_path / "run" / "summary.json").exists()
    elif program == "experiments.boxworld.analysis":
        given = "--weights=runs/boxworld"
        assert given in arguments
        arguments[arguments.index(given)] = f"--weights={ROOT}/results/boxworld/quick_simplicial"
        ended = run([*arguments, "--episodes=2", f"--out={tmp_path}/out"], installed, empty)
        assert ended.returncode == 0, ended.stderr
        assert (tmp_path / "out" / "episode.gif").exists()
    elif program == "experiments.mathematics.solve":
        nothing = [f"--run={tmp_path}" if "--run=" in argument else argument for argument in arguments]
        ended = run(
            nothing, installed, empty
        )  # tests/experiments/mathematics/test_solve.py asks a trained model
        assert ended.returncode != 0
        assert str(tmp_path) in ended.stdout + ended.stderr
    else:
        assert program == "experiments.boxworld.play"  # its own tests give it a terminal
        assert "expected a terminal" in run(arguments, installed, empty).stderr


def test_only_the_wheel_is_run(installed, tmp_path):
    """The tests above do not find the checkout instead."""
    code = (
        "import importlib.util as u; print(*(u.find_spec(name).origin for name in ('experiments', 'llrnn')))"
    )
    ended = run(["-c", code], installed, tmp_path / "empty")
    found = ended.stdout.split()
    assert len(found) == 2, ended.stderr
    assert all(path.startswith(str(installed)) for path in found)


@pytest.mark.parametrize("page", ["README.md", "results/README.md", "CHANGELOG.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    path = ROOT / page
    found = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    targets = [target for target in found if "://" not in target]
    assert targets or "README" not in page
    files = [target.partition("#")[0] for target in targets]
    assert [file for file in files if not (path.parent / file).exists()] == []


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`?make ([a-z-]+)", README)) <= targets


def test_programs_named_in_the_text_exist_and_are_tested():
    """Commands in sentences, too: each program has its tests."""
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    programs = (
        r"(?:`python -m |^python -m |^\.venv/bin/python -m )((?:experiments|benchmarks)\.[a-z_.]+[a-z])"
    )
    named = set(re.findall(programs, README + pages, re.MULTILINE))
    assert len(named) > 5
    for name in sorted(named):
        path = Path(*name.split("."))
        if (ROOT / path).is_dir():
            assert (ROOT / path / "__main__.py").exists(), name
            assert list((ROOT / "tests" / path).glob("test_*.py")), name
        else:
            assert (ROOT / path).with_suffix(".py").exists(), name
            tests = [*(ROOT / "tests" / path.parent).glob("**/test_*.py")]
            assert [test for test in tests if path.name in test.read_text(encoding="utf-8")], name
