"""One of several processes of a run, for the tests of `processes`: prints JSON as its last line.

python several.py WHAT WORKDIR [COORDINATOR NUM_PROCESSES PROCESS_ID]
"""

import contextlib
import dataclasses
import io
import json
import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import regression  # pyrefly: ignore[missing-import]
from jax.sharding import NamedSharding, PartitionSpec

from experiments import runtime
from experiments.runtime import checkpoints, processes

FEATURES = 24
ROWS = 16
QUESTIONS = 19  # no multiple of the processes or devices


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """Of the run.

    Attributes:
        lr: step size.
    """

    lr: float = 0.1


def rows(step):
    """Returns this process's rows of a batch."""
    rng = np.random.default_rng(step)
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    weights = rng.integers(1, 5, ROWS).astype(np.float32)
    mine = np.split(np.arange(ROWS), jax.process_count())[jax.process_index()]
    return {"x": x[mine], "weight": weights[mine]}


def run(workdir, *, steps=12, pause=0.0, **changes):
    """Runs gradient descent on a weighted error, with a total that no process knows alone."""
    config = Config(batch_size=ROWS, steps=steps, log_every=2, checkpoint_every=4, eval_every=4, **changes)
    target = jnp.linspace(-1, 1, FEATURES)

    def loss(params, batch, key):
        error = batch["x"] @ (params["w"] - target[:, None])
        total = jnp.sum(batch["weight"] * jnp.mean(error**2, axis=-1)) / batch["weights"]
        return runtime.Sums(total, batch["x"].shape[0] / ROWS)

    def batches(step):
        time.sleep(pause)
        return rows(step)

    def evaluate(params):
        def measured(question):
            return {"counted": np.int64(1), "sum": np.asarray(jnp.sum(params["w"]) * question, np.float64)}

        found = processes.summed(measured, list(range(QUESTIONS)))
        return {name: float(value) for name, value in found.items()}

    return runtime.fit(
        config,
        init=lambda key: {"w": jax.random.normal(key, (FEATURES, 8))},
        loss=loss,
        totals=lambda batch: {"weights": jnp.sum(batch["weight"])},
        batches=batches,
        optimizer=optax.sgd(config.lr),
        evaluate=evaluate,
        workdir=workdir,
        parallel=os.environ.get("WAY", "jit") if "FSDP" not in os.environ else runtime.Layout(fsdp=True),
        quiet=True,
    )


def trained(workdir):
    """Trains and returns the outcome."""
    result = run(workdir)
    return {"metrics": result.metrics, "w": np.asarray(result.params["w"], float).ravel().tolist()}


def slowly(workdir):
    """Trains until the process is stopped."""
    run(workdir, steps=4000, pause=0.05)
    return {}


def disagreeing(workdir):
    """Starts with different settings in each process: of the run, its directory, and its checkpoints."""
    index = jax.process_index()
    stray = checkpoints.Checkpoints(workdir / "stray" / str(index), every=1, keep=2)
    return {
        "rate": failing(lambda: run(workdir, lr=0.1 * (1 + index))),
        "apart": failing(lambda: run(workdir / str(index))),
        "stray": failing(lambda: stray.restore({})),
        "launched": launching(f"--workdir={workdir / 'launched' / str(index)}"),
    }


def launching(*arguments):
    """Returns the exit status and the standard error of the program with this command line."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.suppress(SystemExit):
        runtime.launch(regression.EXPERIMENT, argv=["regression", *arguments])
    return errors.getvalue()


def telling(workdir):
    """Exchanges values between the processes."""
    index = jax.process_index()
    found = {
        "numbers": processes.gathered([index + 1e-9, 2.0]).tolist(),
        "texts": processes.gathered_texts("ab" * index),
        "total": [int(n) for n in processes.total([np.int64(2**40 + index), index])],
        "share": list(processes.share(range(5))),
        "few": int(processes.summed(lambda n: np.int64(n), [7])),
        "sum": int(processes.summed(lambda n: np.int64(n * n), range(5))),
        "rows": processes.own_rows({"x": np.arange(8).reshape(4, 2), "n": np.int64(3)}),
    }
    found["rows"] = {name: value.tolist() for name, value in found["rows"].items()}
    everywhere = NamedSharding(runtime.Layout().mesh(), PartitionSpec("data"))
    split = jax.make_array_from_process_local_data(everywhere, np.asarray([[index, 5]], np.float32))
    here = processes.on_own_devices({"a": split, "b": 3})
    assert here["a"].devices() == set(jax.local_devices())
    found["whole"] = [here["a"].tolist(), here["b"]]
    found["failed"] = failing(lambda: processes.in_all(lambda: 1 // (1 - index), ValueError))
    workdir.mkdir(exist_ok=True)

    def make():
        file = workdir / "made"
        if not file.exists():
            time.sleep(0.2)
            file.write_text(str(index))
        return file.read_text()

    found["made"] = processes.first_before_others(make, ValueError)
    return found | {"disagreeing": disagreeing(workdir), "trained": trained(workdir / "run")}


def failing(work):
    """Returns the type and message of the error."""
    try:
        work()
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": None}


if __name__ == "__main__":
    what, directory, *others = sys.argv[1:]
    if others:
        processes.connect("auto", others[0], int(others[1]), int(others[2]))
    answer = globals()[what](Path(directory))
    print(json.dumps({"devices": jax.device_count(), **answer}))
