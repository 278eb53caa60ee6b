"""Configs for language models with and without attention to pairs.

python -m experiments.reasoning --config=PRESET --config.FIELD=VALUE --workdir=DIR
"""

import dataclasses
from typing import ClassVar, Literal

import optax

from experiments import runtime
from experiments.reasoning.text import BYTES
from simplicial import SimplicialDecoder


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """Configures a model and its training on the bytes of the language reference that comes with Python.

    Attributes:
        every: blocks `every`, 2 * `every`, ... attend to pairs (Roy et al. 2025: 4); 0 for none.
        features: size of an embedding.
        num_layers: number of blocks.
        num_heads: heads of every attention.
        hidden: hidden size of the feed-forward layers.
        window1: how many first keys a query of the pairs sees.
        window2: how many second keys.
        logit: "trilinear" (the paper's) or "signed", with rotary positions.
        length: bytes of an example.
        lr: the highest learning rate.
        warmup_steps: steps in which it rises from 0.
        schedule_steps: steps after which it has fallen to a tenth, by a cosine.
        weight_decay: of AdamW.
        clip: maximum norm of the gradient.
    """

    experiment: ClassVar[str] = "reasoning"
    size_fields: ClassVar[tuple[str, ...]] = (
        *("every", "features", "num_layers", "num_heads", "hidden", "window1", "window2", "logit", "length"),
    )

    every: int = 4
    features: int = 96
    num_layers: int = 4
    num_heads: int = 4
    hidden: int = 384
    window1: int = 8
    window2: int = 64
    logit: Literal["trilinear", "signed"] = "trilinear"
    length: int = 128
    lr: float = 2e-3
    warmup_steps: int = 100
    schedule_steps: int = 1000
    weight_decay: float = 0.1
    clip: float = 1.0

    def validate(self) -> None:
        """See `RunConfig.validate`."""
        super().validate()
        for name in ("features", "num_layers", "num_heads", "hidden", "window1", "window2", "length"):
            runtime.at_least(name, getattr(self, name), 1)
        for name in ("every", "warmup_steps", "weight_decay"):
            runtime.at_least(name, getattr(self, name), 0)
        runtime.at_least("schedule_steps", self.schedule_steps, self.warmup_steps + 1)
        for name in ("lr", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected more than 0")

    def make_model(self) -> SimplicialDecoder:
        """Builds the model."""
        return SimplicialDecoder(
            BYTES,
            features=self.features,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            hidden=self.hidden,
            every=self.every,
            window1=self.window1,
            window2=self.window2,
            logit=self.logit,
        )

    def make_optimizer(self) -> optax.GradientTransformation:
        """Builds AdamW with the schedule."""
        rate = optax.warmup_cosine_decay_schedule(
            0.0, self.lr, self.warmup_steps, self.schedule_steps, 0.1 * self.lr
        )
        adamw = optax.adamw(rate, b2=0.98, weight_decay=self.weight_decay)
        return optax.chain(optax.clip_by_global_norm(self.clip), adamw)


def quick() -> Config:
    """The model of the comparison `simplicial.language` for 1,000 steps; a few minutes on two cores."""
    return Config(batch_size=16, log_every=50, checkpoint_every=200, eval_every=200)


def dot_product() -> Config:
    """`quick` without attention to pairs, and with as many parameters."""
    return dataclasses.replace(quick(), every=0, hidden=408)


get_config = runtime.Presets(quick=quick, dot_product=dot_product)
