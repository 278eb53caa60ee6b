"""The released agent at work on boards that it has never seen, for `experiments.showcase`."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runtime
from experiments.boxworld import load, measures
from simplicial import boxworld, win_rates

BOARDS = 200


def showcase(directory: Path, seed: int) -> runtime.Stop:
    """Plays new boards, writes a clip of one episode, and returns the section of the page."""
    from experiments.boxworld import analysis, episodes, video  # which need Matplotlib

    trained = load.load("boxworld/quick_simplicial")
    config, cap = trained.config, trained.run.eval_cap
    for_boards, for_actions, for_clip = jax.random.split(jax.random.key(seed), 3)
    boards = boxworld.reset_batch(for_boards, BOARDS, config)
    policies = {"agent": (trained.policy, trained.params), "random": (measures.random_policy, jnp.zeros(1))}
    rows = []
    for name, (policy, params) in policies.items():
        played = win_rates.play(policy, params, boards, config, for_actions, cap=cap)
        counts = win_rates.tally(played, measures.ANY)
        (share,) = measures.shares(
            {name: np.asarray(getattr(counts, name)) for name in ("episodes", *measures.SHOWN)}
        )
        low, high = share["interval"]
        rows.append(
            {
                "policy": name,
                "boards solved": f"{share['solved']:.1%}",
                "95% interval": f"{low:.1%} to {high:.1%}",
                "boards": str(BOARDS),
            }
        )
    episode, _ = episodes.first_solved(trained, for_clip, analysis.usual_puzzle(config), cap=cap)
    clip = video.write_gif(video.frames(episode, episodes.virtual_views(episode)), directory / "episode.gif")
    return runtime.Stop(
        title="2-simplicial Transformer: keys, locks and a box that must not be opened",
        meaning=(
            "The agent picks up the loose key and opens the box of the same colour, which holds the white "
            "Gem; the other box ends the episode. It was trained by reinforcement learning on "
            f"{trained.frames / 1e6:.1f} million steps of other boards. The clip shows its policy and what "
            "its virtual entities attend to."
        ),
        rows=rows,
        figures={clip: f"A new board, played by the agent: {episode.ending} after {episode.steps} steps."},
        caveat="A small board with one key, not the paper's bridge BoxWorld.",
        commands={
            "Play the paper's environment yourself": "python -m experiments.boxworld.play",
            "Train an agent (2 minutes)": (
                "python -m experiments.boxworld --config=quick --workdir=runs/boxworld"
            ),
            "See what an agent attends to": (
                "python -m experiments.boxworld.analysis --weights=boxworld/quick_simplicial --out=figures"
            ),
        },
    )
