"""Training steps of whole FOLNets on an accelerator, for `python -m benchmarks.folnet --accelerator`."""

import functools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import contractions, steps, timing
from experiments import folnet_optimizer
from folnet import FOLNetConfig, FOLNetForPreTraining, objective

AUTHORS_TOKENS_PER_SECOND = 6068  # FOLNet Base, T = 128, one V100


class Case(NamedTuple):
    """A training step."""

    length: int  # T
    batch: int  # texts in a step
    remat: str  # what the backward pass computes again
    dropout: float = 0.0  # of kernels; 0 is needed for the kernel of trans
    trans: str | None = None  # its implementation; None for the fastest proven here

    @property
    def name(self) -> str:
        """In one line."""
        trans = self.trans or "fastest"
        return f"T={self.length} B={self.batch} {self.remat} dropout={self.dropout:g} trans={trans}"


def cases(short: int = 128, long: int = 512, batch: int = 32) -> list[Case]:
    """The cases, those most wanted first; a batch has as many tokens at either length."""
    # At T = 128 as many tokens are a fourth of the pairs, so less has to be computed again.
    few, many = batch, batch * long // short
    return [
        Case(short, many, "relation_boolean", 0.1),
        Case(short, many, "relation_boolean"),
        Case(short, many, "relation_boolean", trans="xla"),
        Case(long, few, "nothing_saveable", 0.1),
        Case(long, few, "nothing_saveable"),
        Case(long, few, "nothing_saveable", trans="xla"),
        Case(short, many, "relation_boolean", trans="gpu"),
        Case(long, few, "nothing_saveable", trans="gpu"),
        Case(short, many // 2, "none", 0.1),
        Case(short, many * 2, "nothing_saveable", 0.1),
        Case(long, few, "relation_boolean", 0.1),
    ]


def examples(config: FOLNetConfig, batch: int, length: int) -> dict[str, jax.Array]:
    """A batch of random text: 15 % of the words masked, two segments."""
    rng = np.random.default_rng(0)
    masked = max(1, length * 20 // 128)
    return {
        "input_ids": jnp.asarray(rng.integers(0, config.vocab_size, (batch, length)), jnp.int32),
        "token_type_ids": jnp.asarray(np.arange(length)[None] >= length // 2, jnp.int32).repeat(batch, 0),
        "mlm_positions": jnp.asarray(rng.integers(0, length, (batch, masked)), jnp.int32),
        "mlm_labels": jnp.asarray(rng.integers(0, config.vocab_size, (batch, masked)), jnp.int32),
        "next_sentence_label": jnp.asarray(rng.integers(0, 2, (batch,)), jnp.int32),
    }


def loss(config: FOLNetConfig, params: Any, batch: dict[str, jax.Array], key: jax.Array | None) -> jax.Array:
    """Mean losses of masked words and of the sentence task."""
    out = FOLNetForPreTraining(config).apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        deterministic=key is None,
        mlm_positions=batch["mlm_positions"],
        rngs=None if key is None else {"dropout": key},
    )
    assert not isinstance(out, tuple)
    words = objective.masked_language_model(out.prediction_logits, batch["mlm_labels"])
    return words.mean + objective.sentence(out.seq_relationship_logits, batch["next_sentence_label"]).mean


def model_operations(config: FOLNetConfig, batch: int, length: int) -> int:
    """Multiplications and additions of a step's contractions, forward and backward, nothing twice."""
    plain = config.replace(remat="none", trans_implementation="xla")
    params, example = shapes(plain, batch, length)
    gradient = jax.grad(functools.partial(loss, plain))
    return contractions.operations(contractions.of(gradient, params, example, None))


def shapes(config: FOLNetConfig, batch: int, length: int) -> tuple[Any, Any]:
    """Of parameters, and of a batch."""
    example = jax.eval_shape(lambda: examples(config, batch, length))
    model = FOLNetForPreTraining(config)
    return jax.eval_shape(model.init, jax.random.key(0), example["input_ids"])["params"], example


def measure(config: FOLNetConfig, case: Case, rate: float, seconds: float) -> dict[str, Any]:
    """A row; of a case that does not run here, why."""
    config = config.replace(
        remat=case.remat,
        attention_probs_dropout_prob=case.dropout,
        hidden_dropout_prob=case.dropout,
        trans_implementation=case.trans,
    )
    row: dict[str, Any] = {"name": case.name, **case._asdict()}
    start = time.perf_counter()
    try:
        row |= _run(config, case, seconds)
    except Exception as error:  # out of memory, unsupported: a finding, and the others go on
        row["failed"] = steps.failed(error)
        return row
    finally:
        row["wall_seconds"] = round(time.perf_counter() - start, 1)
    per_token = model_operations(config, case.batch, case.length) / (case.batch * case.length)
    row["gflop_a_token"] = per_token / 1e9
    row["utilisation"] = per_token * row["tokens_per_second"] / rate
    return row


def _run(config: FOLNetConfig, case: Case, seconds: float) -> dict[str, Any]:
    optimizer = folnet_optimizer.lamb(optax.constant_schedule(1e-3))
    batch = examples(config, case.batch, case.length)
    key = jax.random.key(0, impl="rbg") if case.dropout else None

    def step(params, state, batch, key):
        grads = jax.grad(functools.partial(loss, config))(params, batch, key)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    model = FOLNetForPreTraining(config)
    params = jax.jit(model.init)(jax.random.key(0), batch["input_ids"][:1])["params"]
    held: list[Any] = [params, jax.jit(optimizer.init)(params)]
    # Compiled beforehand, it cannot be compiled again: other shapes or types would be an error.
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(*held, batch, key).compile()

    def call() -> Any:
        held[:] = compiled(*held, batch, key)
        return held[0]

    times = timing.alternate({"step": call}, blocks=5, block_seconds=seconds)["step"]
    used = compiled.memory_analysis()
    tokens = case.batch * case.length
    median = float(np.median(times))
    return {
        "seconds": {"median": median, "least": min(times), "greatest": max(times)},
        "tokens_per_second": tokens / median,
        "times_the_authors": tokens / median / AUTHORS_TOKENS_PER_SECOND,
        "peak_bytes": steps.peak_bytes(used),
        "temporary_bytes": used.temp_size_in_bytes if used else None,
    }


def rows(
    config: FOLNetConfig, chosen: list[Case], *, matrix: int, seconds: float, budget: float
) -> Iterator[dict[str, Any]]:
    """Rows as they are found, the first of them the rate; what is left when the budget is spent is named.

    Args:
      config: of the model.
      chosen: the cases.
      matrix: size of the matrices whose product is the rate; 0: by platform.
      seconds: a block of timing.
      budget: seconds after which no case is begun.
    """
    start = time.monotonic()
    rate = steps.matrix_rate(matrix, seconds, config.dtype)
    yield {"name": f"product of large {config.dtype} matrices", "operations_per_second": rate}
    for case in chosen:
        if time.monotonic() - start > budget:
            yield {"name": case.name, "failed": "not begun: the budget is spent"}
        else:
            yield measure(config, case, rate, seconds)


def told(row: dict[str, Any]) -> str:
    """A row in one line."""
    if "failed" in row:
        return f"{row['name']:60} {row['failed']}"
    if "operations_per_second" in row:
        return f"{row['name']:60} {row['operations_per_second'] / 1e12:.2f} TFLOP/s"
    return (
        f"{row['name']:60} {row['tokens_per_second']:9,.0f} tokens/s, {100 * row['utilisation']:.1f} % of "
        f"the matrix rate, {(row['peak_bytes'] or 0) / 2**30:.1f} GiB"
    )
