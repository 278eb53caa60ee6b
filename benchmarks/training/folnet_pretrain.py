"""Measures pretraining steps of FOLNet Base (`base_16gb`: MLM and sentence losses, LAMB) in bfloat16.

Lengths are T = 128 and 512. With dropout, trans consists of plain operations; without dropout of its kernels,
the trans kernel can be compared with XLA's.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import steps
from experiments.folnet_pretrain import optimizer
from folnet import BASE, FOLNetConfig, FOLNetForPreTraining, objective

AUTHORS_TOKENS_PER_SECOND = 6068  # FOLNet Base, T = 128, one V100


class Case(NamedTuple):
    """A training step on `batch` texts of `length` tokens.

    `remat` selects what the backward pass recomputes. `trans` is the implementation of trans, None for the
    fastest one tested on this chip; kernels need `dropout` to be 0.
    """

    length: int
    batch: int
    remat: str
    dropout: float = 0.0
    trans: str | None = None

    @property
    def name(self) -> str:
        """The case as one line of text."""
        trans = self.trans or "fastest"
        return f"T={self.length} B={self.batch} {self.remat} dropout={self.dropout:g} trans={trans}"


def chosen(short: int = 128, long: int = 512, batch: int = 32) -> list[Case]:
    """Returns the cases, most important first; batches have the same number of tokens at both lengths."""
    # At T = 128 the same number of tokens has a quarter of the pairs, so less must be recomputed.
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


def examples(config: FOLNetConfig, batch: int, length: int, seed: int = 0) -> dict[str, jax.Array]:
    """Draws a batch of random text with 15% of the tokens masked and two segments."""
    rng = np.random.default_rng(seed)
    masked = max(1, length * 20 // 128)
    return {
        "input_ids": jnp.asarray(rng.integers(0, config.vocab_size, (batch, length)), jnp.int32),
        "token_type_ids": jnp.asarray(np.arange(length)[None] >= length // 2, jnp.int32).repeat(batch, 0),
        "mlm_positions": jnp.asarray(rng.integers(0, length, (batch, masked)), jnp.int32),
        "mlm_labels": jnp.asarray(rng.integers(0, config.vocab_size, (batch, masked)), jnp.int32),
        "next_sentence_label": jnp.asarray(rng.integers(0, 2, (batch,)), jnp.int32),
    }


def loss(config: FOLNetConfig, params: Any, batch: dict[str, jax.Array], key: jax.Array | None) -> jax.Array:
    """Computes the sum of the mean MLM loss and the mean sentence loss."""
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


def counted(config: FOLNetConfig) -> Any:
    """Returns the loss for counting contractions, without recomputation or kernels that would hide them."""
    plain = config.replace(remat="none", trans_implementation="xla")
    return lambda params, batch, key: loss(plain, params, batch, None)


def cases() -> dict[str, tuple[str, Any]]:
    """Returns the cases of FOLNet Base."""
    config = BASE.replace(dtype="bfloat16")
    return {case.name: (config.dtype, (config, case)) for case in chosen()}


def measure(of: tuple[FOLNetConfig, Case], rate: float, seconds: float) -> dict[str, Any]:
    """Measures one case, for `steps.rows`."""
    config, case = of
    config = config.replace(
        remat=case.remat,
        attention_probs_dropout_prob=case.dropout,
        hidden_dropout_prob=case.dropout,
        trans_implementation=case.trans,
    )
    batch, tokens = examples(config, case.batch, case.length), case.batch * case.length
    init = jax.jit(FOLNetForPreTraining(config).init)
    row = steps.measure_training(
        functools.partial(loss, config),
        optimizer.lamb(optax.constant_schedule(1e-3)),
        init(jax.random.key(0), batch["input_ids"][:1])["params"],
        (batch, jax.random.key(0, impl="rbg") if case.dropout else None),
        counted_loss=counted(config),
        seconds=seconds,
        count={"tokens": tokens},
        rate=rate,
    )
    row["gflop_a_token"] = row["gflop_a_call"] / tokens
    row["times_the_authors"] = row["tokens_per_second"] / AUTHORS_TOKENS_PER_SECOND
    return case._asdict() | row


ROOM = steps.Room("folnet", cases, measure)
