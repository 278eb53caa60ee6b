"""The training loop: results, metrics, checkpoints, and errors."""

import importlib
import json
import shutil
import signal
import threading
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import regression  # pyrefly: ignore[missing-import]
from regression_config import Config, quick  # pyrefly: ignore[missing-import]

from experiments import runtime
from experiments.runtime import metrics
from experiments.runtime.fit import averages
from experiments.runtime.training import Trace

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def fit(config, **arguments):
    return regression.main(config, quiet=True, **arguments)


def without_time(records):
    return [{key: value for key, value in record.items() if key != "train_seconds"} for record in records]


@pytest.fixture(scope="module")
def straight(tmp_path_factory, compiled_quickly):
    """An uninterrupted run of 60 steps."""
    workdir = tmp_path_factory.mktemp("straight") / "run"
    return workdir, fit(quick(), workdir=workdir)


def host_batch(step):
    random = np.random.default_rng(step)
    x, y = random.normal(size=(16, 4)).astype(np.float32), random.normal(size=(16, 3)).astype(np.float32)
    return {"x": x, "y": y, "mask": random.uniform(size=(16, 3)) < 0.4, "offset": np.float32(0)}


def test_updates_are_gradient_descent_on_the_ratio_of_sums():
    config = quick()
    result = fit(config, sample=None, batches=host_batch)
    initial = fit(Config(steps=1, batch_size=16, lr=0.0), sample=None, batches=host_batch)
    kernel, bias = (np.asarray(initial.params[name], np.float64) for name in ("kernel", "bias"))
    totals, counts, norms = [], [], []
    for step in range(config.steps):
        batch = host_batch(step)
        error = np.where(batch["mask"], batch["x"] @ kernel + bias - batch["y"], 0.0)
        totals.append((error**2).sum())
        counts.append(batch["mask"].sum())
        slopes = 2 * batch["x"].T @ error / counts[-1], 2 * error.sum(0) / counts[-1]
        norms.append(np.sqrt(sum((slope**2).sum() for slope in slopes)))
        kernel, bias = kernel - config.lr * slopes[0], bias - config.lr * slopes[1]
    np.testing.assert_allclose(result.params["kernel"], kernel, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.params["bias"], bias, rtol=1e-5, atol=1e-6)
    assert result.metrics["loss"] == pytest.approx(sum(totals[-10:]) / sum(counts[-10:]), rel=1e-5)
    assert result.metrics["grad_norm"] == pytest.approx(np.mean(norms[-10:]), rel=1e-5)


def test_metrics_of_several_steps_are_ratios_of_their_sums():
    """Not means of ratios; nothing divided by nothing is no number."""
    ratios = {"rare": ([0, 0], [0, 0]), "within": ([1, 3], [4, 6]), "loss": ([1.0, 3.0], [2.0, 6.0])}
    arrays: Any = {name: (np.asarray(over), np.asarray(under)) for name, (over, under) in ratios.items()}
    found = averages(Trace(arrays, jnp.asarray([True, True])))
    assert list(found) == ["loss", "rare", "within"]
    assert (found["loss"], found["within"]) == (0.5, 0.4)
    assert np.isnan(found["rare"])


def test_metrics_are_summed_with_more_digits_than_they_have():
    over = np.asarray([2.0**24, 1, 1], np.float32)  # 1 is too little to change the first
    arrays: Any = {"loss": (over, np.ones(3, np.int32)), "inverse": (np.ones(3, np.int32), over)}
    found = averages(Trace(arrays, jnp.asarray([True])))
    assert found == {"loss": (2**24 + 2) / 3, "inverse": 3 / (2**24 + 2)}


def test_a_run_leaves_its_record_and_summary(straight):
    workdir, result = straight
    records = metrics.read(workdir / "metrics.jsonl")
    assert [record["step"] for record in records] == [10, 20, 30, 40, 50, 60]
    assert all({"loss", "grad_norm", "within", "train_seconds"} <= set(record) for record in records)
    assert records[-1]["loss"] < 0.5 * records[0]["loss"]
    assert ["eval/norm" in record for record in records] == [False] * 5 + [True]
    summary = json.loads((workdir / "summary.json").read_text())
    assert summary == json.loads(json.dumps(result.summary))
    assert summary["step"] == 60
    assert summary["metrics"] == {key: value for key, value in records[-1].items() if key != "step"}
    assert summary["params_sha256"] == runtime.params_sha256(result.params)
    assert summary["versions"]["jax"] == jax.__version__
    assert summary["devices"]["count"] == jax.device_count()
    config = json.loads((workdir / "config.json").read_text())
    assert (config["lr"], config["data"]) == (0.05, {"inputs": 4, "outputs": 3, "shape": []})
    assert sorted(entry.name for entry in (workdir / "checkpoints").iterdir()) == ["40", "60"]


def test_the_seed_decides(straight):
    config = quick()
    config.seed = 1
    assert fit(config).summary["params_sha256"] != straight[1].summary["params_sha256"]


def test_a_continued_run_is_the_same_run(straight, tmp_path):
    config = quick()
    config.steps = 40
    first = fit(config, workdir=tmp_path)
    assert first.step == 40
    config.steps = 60
    second = fit(config, workdir=tmp_path)
    workdir, result = straight
    assert second.summary["params_sha256"] == result.summary["params_sha256"]
    both = [without_time(metrics.read(path / "metrics.jsonl")) for path in (tmp_path, workdir)]
    evaluated = both[0][3].pop("eval/norm")  # step 40 was the end of the first session
    assert evaluated > 0
    assert both[0] == both[1]
    assert second.train_seconds > first.train_seconds > 0


def test_a_finished_run_does_no_more(straight):
    workdir, result = straight
    before = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}

    def unexpected(*_):
        raise AssertionError("nothing should be evaluated")

    again = fit(quick(), workdir=workdir, evaluate=unexpected)
    assert {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()} == before
    assert again.summary == json.loads(json.dumps(result.summary))
    np.testing.assert_array_equal(again.params["kernel"], result.params["kernel"])


def test_a_run_killed_before_its_summary_gets_one(straight, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(straight[0], workdir)
    (workdir / "summary.json").unlink()
    again = fit(quick(), workdir=workdir)
    assert again.summary["params_sha256"] == straight[1].summary["params_sha256"]
    assert again.summary["metrics"] == straight[1].summary["metrics"]
    assert (workdir / "summary.json").exists()


def test_lines_after_the_checkpoint_are_written_again(straight, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(straight[0], workdir)
    shutil.rmtree(workdir / "checkpoints" / "60")
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 70, "lo')
    fit(quick(), workdir=workdir)
    first, second = (without_time(metrics.read(path / "metrics.jsonl")) for path in (straight[0], workdir))
    assert first == second


def test_a_step_is_traced_once():
    config = quick()

    def loss(params, batch, key):
        return runtime.Sums(jnp.sum((batch @ params) ** 2), 16)

    # Once to check the shapes, once to compile; six chunks of ten steps ran.
    counted: Any = chex.assert_max_traces(loss, n=2)
    runtime.fit(
        config,
        init=lambda key: jnp.ones(4),
        loss=counted,
        sample=lambda key, step: jax.random.normal(key, (16, 4)),
        optimizer=optax.sgd(1e-3),
        quiet=True,
    )


def test_every_step_draws_its_own_batch_whatever_the_intervals(tmp_path):
    def run(log_every, workdir=None):
        def sample(key, step, params, extra):
            drawn = jax.random.uniform(key, (16, 4))
            return {"x": drawn, **others}, extra.at[step].set(drawn[0, 0])

        others = {"y": jnp.zeros((16, 3)), "mask": jnp.ones((16, 3), bool), "offset": jnp.float32(0)}
        config = Config(steps=12, batch_size=16, log_every=log_every, checkpoint_every=12)
        return fit(config, sample=sample, init_extra=lambda key: jnp.zeros(12), workdir=workdir).state.extra

    seen = run(12, tmp_path)
    assert len(set(seen.tolist())) == 12
    np.testing.assert_array_equal(seen, run(4))
    np.testing.assert_array_equal(seen, run(12, tmp_path))  # restored: the extra state is in the checkpoint


def test_no_two_draws_of_a_run_have_the_same_key(monkeypatch):
    """Initial parameters, initial extra state, each step's batch and each step's loss; nor do other seeds."""
    traces = []
    module = importlib.import_module("experiments.runtime.fit")  # of the function's name
    monkeypatch.setattr(module, "averages", lambda trace: traces.append(trace) or {})

    def word(key):
        return jax.random.key_data(key)[..., 1].ravel()[0].astype(jnp.float32)

    def sample(key, step, params, extra):
        return {"x": jnp.zeros(16)}, extra.at[step + 1].set(word(key))

    def loss(params, batch, key):
        return runtime.Sums(0.0 * params, 16, {"word": (word(key), 1)})

    found = []
    for seed in (0, 1):
        config = Config(seed=seed, steps=4, batch_size=16, log_every=4, checkpoint_every=4)
        result = runtime.fit(
            config,
            init=word,
            loss=loss,
            sample=sample,
            init_extra=lambda key: jnp.zeros(5).at[0].set(word(key)),
            optimizer=optax.sgd(0.0),
            quiet=True,
        )
        found += [float(result.params), *result.state.extra.tolist()]
        found += traces.pop().ratios["word"][0].tolist()
    assert len(found) == 2 * (1 + 1 + 4 + 4)
    assert len(set(found)) == len(found)


def test_batches_are_asked_for_in_order_once_and_not_beyond_the_end():
    asked = []

    def batches(step):
        asked.append(step)
        return host_batch(step)

    fit(Config(steps=12, batch_size=16, log_every=5, checkpoint_every=5), sample=None, batches=batches)
    assert asked == list(range(12))


def test_an_error_in_batches_reaches_the_caller():
    def batches(step):
        if step == 7:
            raise OSError("the disk is gone")
        return host_batch(step)

    with pytest.raises(OSError, match="the disk is gone"):
        fit(quick(), sample=None, batches=batches)


def test_conclude_goes_into_the_summary(tmp_path):
    calls = []

    def conclude(params):
        calls.append(1)
        return {"lengths": [10, 20], "error": 0.5}

    config = Config(steps=10, batch_size=16, log_every=10, checkpoint_every=10)
    for _ in range(2):
        result = fit(config, workdir=tmp_path, conclude=conclude)
        assert result.results == {"lengths": [10, 20], "error": 0.5}
    assert calls == [1]
    assert json.loads((tmp_path / "summary.json").read_text())["results"] == result.results


def test_max_seconds_stops_at_an_interval_and_counts_over_sessions(tmp_path):
    config = Config(steps=10_000, batch_size=16, log_every=10, checkpoint_every=1000, max_seconds=1e-9)
    first = fit(config, workdir=tmp_path)
    assert first.step == 10
    assert "eval/norm" in first.metrics
    assert fit(config, workdir=tmp_path).summary == first.summary
    config.max_seconds = first.train_seconds + 1e-9
    second = fit(config, workdir=tmp_path)
    assert second.step == 20
    assert second.train_seconds > first.train_seconds


@pytest.mark.parametrize(("poison", "saved"), [(33, 20), (5, None)])
def test_a_loss_that_is_not_finite_stops_the_run_and_is_not_saved(tmp_path, poison, saved):
    config = quick()
    config.poison = poison
    with pytest.raises(runtime.NonFiniteLoss, match=f"the loss is nan at step {poison + 1}") as caught:
        fit(config, workdir=tmp_path)
    assert caught.value.step == poison + 1
    path = tmp_path / "checkpoints" / str(saved)
    assert caught.value.checkpoint == (path if saved else None)
    assert (str(path) if saved else "no earlier checkpoint") in str(caught.value)
    assert not (tmp_path / "summary.json").exists()
    records = metrics.read(tmp_path / "metrics.jsonl")
    assert all(record["loss"] is not None for record in records)
    # The saved state is good: with clean data the run continues from it.
    config.poison = -1
    started = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(started | {"poison": -1}))
    again = fit(config, workdir=tmp_path)
    assert again.step == 60
    assert np.isfinite(again.params["kernel"]).all()


def test_parameters_that_are_not_finite_are_not_saved_though_the_loss_still_is(tmp_path):
    """The update of step 20, right before a checkpoint, breaks the parameters; the loss of that step is
    finite.
    """

    def broken(step):
        return jnp.where(step == 19, jnp.inf, 0.05)

    with pytest.raises(runtime.NonFiniteLoss, match="a parameter is not at step 20") as caught:
        fit(quick(), workdir=tmp_path, optimizer=optax.sgd(broken))
    assert caught.value.checkpoint is None
    assert not list((tmp_path / "checkpoints").glob("*")) if (tmp_path / "checkpoints").exists() else True


def test_sigterm_saves_at_the_end_of_the_interval(straight, tmp_path):
    config = quick()
    calls = []

    def evaluate(params):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGTERM)
        return {}

    config.eval_every = 10
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(runtime.Preempted, match=r"at step 30 of 60; saved to .*checkpoints.30"):
        fit(config, workdir=tmp_path, evaluate=evaluate)
    assert signal.getsignal(signal.SIGTERM) is before
    assert fit(config, workdir=tmp_path).summary["params_sha256"] == straight[1].summary["params_sha256"]


def test_sigterm_while_a_run_ends_stops_the_next_one(tmp_path):
    """Programs that train several models one after another stop as soon as they can."""

    def last(params):
        signal.raise_signal(signal.SIGTERM)
        return {}

    assert fit(quick(), workdir=tmp_path / "first", conclude=last).step == 60
    with pytest.raises(runtime.Preempted, match="at step 10 of 60"):
        fit(quick(), workdir=tmp_path / "second")
    assert fit(quick(), workdir=tmp_path / "second").step == 60


def test_what_is_wrong_is_said_before_anything_is_written(tmp_path):
    workdir = tmp_path / "run"
    mistakes = {
        r"batch\['x'\]: got shape \(15, 4\).*batch_size=16": {
            "sample": lambda key, step: {"x": jnp.zeros((15, 4))}
        },
        "sample, batches: got both, expected exactly one": {"batches": host_batch},
        "sample, batches: got neither, expected exactly one": {"sample": None},
        "init_extra: got it with batches": {
            "sample": None,
            "batches": host_batch,
            "init_extra": lambda key: 0,
        },
        r"batch\['y'\]: got shape \(15, 4\).*batch_size=16": {
            "sample": None,
            "batches": lambda step: {"y": np.zeros((15, 4), np.float32)},
        },
        r"loss: got denominator of shape \(16,\)": {
            "sample": None,
            "batches": host_batch,
            "loss": lambda params, batch, key: runtime.Sums(params["bias"].sum(), batch["x"].sum(1)),
        },
        r"loss: got numerator of shape \(16,\)": {
            "loss": lambda params, batch, key: runtime.Sums(batch["x"].sum(1) * params["bias"][0], 16)
        },
        "loss: got a result of type tuple, expected runtime.Sums": {
            "loss": lambda params, batch, key: (params["bias"].sum(), 16)
        },
        "loss: got metrics grad_norm, expected unreserved names": {
            "loss": lambda params, batch, key: runtime.Sums(params["bias"].sum(), 16, {"grad_norm": (1.0, 1)})
        },
        "parallel: got 'gpu', expected one of 'jit', 'shard_map', 'pmap'": {"parallel": "gpu"},
        "sample: got an extra of other structure": {
            "init_extra": lambda key: jnp.zeros(3),
            "sample": lambda key, step, params, extra: ({"x": jnp.zeros((16, 4))}, jnp.zeros(4)),
        },
    }
    for message, arguments in mistakes.items():
        with pytest.raises(ValueError, match=message):
            fit(quick(), workdir=workdir, **arguments)
        assert not workdir.exists()
        assert not any(thread.name.startswith("batches") for thread in threading.enumerate())
    config = quick()
    config.accumulate = 3
    with pytest.raises(ValueError, match="accumulate: got 3, expected a divisor of batch_size=16, or 0"):
        fit(config, workdir=workdir)


def test_evaluate_must_return_numbers():
    with pytest.raises(ValueError, match=r"'eval/bias': got .*, expected a scalar"):
        fit(quick(), evaluate=lambda params: params)
