"""The smallest run of the language models."""

from experiments.reasoning.config import Config

SMALL = Config(
    steps=20, log_every=10, checkpoint_every=20, eval_every=10, batch_size=4, every=1, features=8,
    num_layers=1, num_heads=2, hidden=8, window1=2, window2=3, length=12, lr=0.05, warmup_steps=1,
    schedule_steps=20,
)  # fmt: skip
