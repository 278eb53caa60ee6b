"""A small untrained model of each paper for export, and processes that run the exported models."""

import functools
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.boxworld import load as boxworld_load
from experiments.boxworld.config import Kind
from experiments.exporting import Exportable, Input, Output, run_exported
from experiments.folnet_pretrain import load as folnet_load
from experiments.llrnn import config as llrnn_configs
from experiments.llrnn import load as llrnn_load
from experiments.llrnn.parts import CellConfig
from experiments.mathematics import load as mathematics_load
from folnet.tokenization import WordPieceTokenizer
from tests.experiments.boxworld import small as small_boxworld
from tests.experiments.folnet_pretrain import small as small_folnet
from tests.experiments.mathematics import small as small_mathematics

TEXTS = ["The cat sees the dog.", "The bird hears the fish.", "The dog likes the bird; the cat likes it."]
OURS = ("experiments", "simplicial", "tp_transformer", "folnet", "llrnn", "kernels", "benchmarks", "tests")
OTHERS = (
    "flax",
    "optax",
    "chex",
    "orbax",
    "absl",
    "ml_collections",
    "safetensors",
    "tokenizers",
    "jaxtyping",
)
RUNNER = Path(run_exported.__file__)


def weigh(params, inputs):
    """Returns 2 * ids where the mask is true, and their sum plus 10."""
    values = jnp.where(inputs["mask"], inputs["ids"] * params["scale"], 0.0)
    return {"each": values, "total": jnp.sum(values, axis=1) + params["offset"]}


SUMS = Exportable(
    kind="sum",
    function=weigh,
    params={"scale": jnp.full((1, 1), 2.0), "offset": jnp.full((1,), 10.0)},
    inputs={
        "ids": Input(("batch", "length"), "int32", "numbers", pad=0, range=(0, 99)),
        "mask": Input(("batch", "length"), "bool", "which count", default=1, pad=0),
    },
    outputs={"total": Output(("batch",), "of all"), "each": Output(("batch", "length"), "of each number")},
    source={"step": None},
    lengths=(4, 8),
    derivable=weigh,
)
IDS = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
"""Two rows for it."""
"""A model of a line, compiled in no time, whose answers are found by hand."""


def drawn(module: Any, *inputs: Any, seed: int) -> Any:
    """Draws parameters with NumPy, since compiling an initialization takes longer than the rest."""
    shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]
    rng = np.random.default_rng(seed)

    def leaf(path, shape):
        scale = shape.shape[-2] ** -0.5 if len(shape.shape) > 1 else 0.1
        gain = path[-1].key == "scale"
        return jnp.asarray(gain + scale * rng.normal(size=shape.shape), shape.dtype)

    return jax.tree_util.tree_map_with_path(leaf, shapes)


@functools.cache
def trained_agent(kind: Kind = "simplicial") -> boxworld_load.Trained:
    """An agent as `experiments.boxworld` opens it."""
    config = small_boxworld.small()
    config.agent.kind = kind
    board = config.board.make()
    picture = jnp.zeros((1, board.rows, board.cols + 1, 3), jnp.uint8)
    module = config.agent.make()
    params = drawn(module, picture, seed=1)
    return boxworld_load.Trained(module, params, board, 7, 7000, "an agent", config)


def agent(kind: Kind = "simplicial") -> Exportable:
    """The agent with the export function of `experiments.boxworld`."""
    return boxworld_load.of_agent(trained_agent(kind))


@functools.cache
def trained_solver() -> mathematics_load.Trained:
    """A TP-Transformer as `experiments.mathematics` opens it."""
    config = small_mathematics.small()
    module = config.model.make()
    tokens = jnp.zeros((1, 2), jnp.int32)
    params = drawn(module, tokens, tokens, seed=4)
    return mathematics_load.Trained(module, params, step=3, config=config)


def solver() -> Exportable:
    """The TP-Transformer with its decoding loop, for export."""
    return mathematics_load.of_solver(trained_solver())


@functools.cache
def trained_recurrent(cell: str = "second_order") -> tuple[llrnn_configs.Config, Any]:
    """The config and the parameters of a recurrent cell on the copy task."""
    config = llrnn_configs.Config(cell=CellConfig.of(cell, features=6), batch_size=4)
    task = config.make_task()
    inputs = jnp.zeros((1, 3, sum(task.fields)))
    params = drawn(config.make_model(task), inputs, seed=2)
    return config, params


def recurrent(cell: str = "second_order") -> Exportable:
    """The recurrent cell with its scan, for export."""
    return llrnn_load.of_recurrent(*trained_recurrent(cell), 5)


@functools.cache
def trained_encoder(**fields: Any) -> folnet_load.Trained:
    """A FOLNet with its heads and a vocabulary, as `experiments.folnet_pretrain` opens it."""
    config = small_folnet.with_model(Path("nowhere"), **fields)
    module = config.model.make(config.data.pretrain_loss)
    params = drawn(module, jnp.zeros((1, 4), jnp.int32), seed=4)
    tokenizer = WordPieceTokenizer.train(TEXTS, 100)
    return folnet_load.Trained(module, params, tokenizer, 9, config)


def encoder(**fields: Any) -> Exportable:
    """The FOLNet as an `Exportable`."""
    return folnet_load.of_pretraining(trained_encoder(**fields))


def start_alone(
    artifact: Path, *arguments: str, devices: int = 1, runner: Path = RUNNER
) -> subprocess.Popen[str]:
    """Starts an artifact with a copy of the runner in a process that cannot import the project."""
    copy = artifact.parent / "copy_of_runner.py"
    copy.write_bytes(runner.read_bytes())
    forbidden = repr([*OURS, *OTHERS])
    code = (
        f"import runpy, sys; sys.modules.update(dict.fromkeys({forbidden})); "
        f"sys.argv = {[str(copy), str(artifact), *arguments]!r}; "
        f"runpy.run_path({str(copy)!r}, run_name='__main__')"
    )
    flags = f"--xla_force_host_platform_device_count={devices}"
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-I", "-W", "error", "-c", code],
        cwd=artifact.parent,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        text=True,
        **pipes,
    )


def run_alone(
    artifact: Path, *arguments: str, stdin: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs an artifact as `start_alone` does, until it ends."""
    with start_alone(artifact, *arguments, **options) as process:
        try:
            output, errors = process.communicate(stdin, timeout=400)
        finally:
            process.kill()
    return subprocess.CompletedProcess(arguments, process.returncode, output, errors)


def rewritten(path, target, change):
    """Writes a copy of the artifact with a changed manifest."""
    with zipfile.ZipFile(path) as before, zipfile.ZipFile(target, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            if name == run_exported.MANIFEST:
                manifest = json.loads(content)
                change(manifest)
                content = json.dumps(manifest).encode()
            after.writestr(name, content)
    return target
