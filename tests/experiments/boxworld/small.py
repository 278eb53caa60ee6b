"""The smallest run of `experiments/boxworld/train.py`: everything in it, in seconds."""

import dataclasses

from experiments.boxworld.config import AgentConfig, BoardConfig, Config

CONFIG = Config(
    agent=AgentConfig(
        features=6,
        heads=2,
        blocks=1,
        two_simplicial_features=3,
        head_features=(6,),
        input_centre=199.0,
        input_scale=64.0,
    ),
    board=BoardConfig(world="standard", rows=5, cols=6, max_length=1, max_distractors=1, horizon=12),
    batch_size=16,
    updates=2,
    unroll=5,
    lr=3e-3,
    steps=4,
    log_every=2,
    checkpoint_every=2,
    eval_episodes=60,  # as many as at the end: one program plays both
    final_episodes=30,
    seeds=2,
)


def small(**fields) -> Config:
    """The config with some fields changed; its parts are its own."""
    copy = dataclasses.replace(
        CONFIG, agent=dataclasses.replace(CONFIG.agent), board=dataclasses.replace(CONFIG.board)
    )
    return dataclasses.replace(copy, **fields)
