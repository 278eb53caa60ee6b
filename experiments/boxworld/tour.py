"""What the tour shows of BoxWorld."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.boxworld import load
from experiments.boxworld.config import Config
from experiments.boxworld.train import main
from experiments.runtime import releasing

RELEASED = Path(__file__).parents[2] / "results" / "boxworld"


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in a directory, and says what is to be seen there."""
    from experiments.boxworld import analysis  # here, since it needs Matplotlib, and training does not

    result = main(config, workdir=directory)
    trained = load.load(best_weights() or directory)
    shown = analysis.draw_episode(trained, directory / "episode", name=trained.name, formats=("gif",))
    frames = result.step * config.frames_per_step
    whose = (
        "the agent trained here" if trained.run == config else f"an agent after {trained.frames:.3g} steps"
    )
    return runtime.Stop(
        title="2-simplicial Transformer: keys, locks and a box that must not be opened",
        meaning=(
            "The agent sees a board of coloured tiles. It has to fetch the loose key, open the box of its "
            "colour for the white Gem, and leave the box alone that ends the episode without it. It learns "
            f"by IMPALA from nothing but rewards: {frames / 1e6:.1f} million steps in "
            f"{result.train_seconds:.0f} s. Its attention compares one entity with another, and with pairs "
            "of virtual entities."
        ),
        rows=rows_of(result.results),
        figures={
            directory / "solved.png": "Fraction of training episodes solved, with 95 % intervals.",
            shown["episode.gif"]: f"An episode of {whose}, and what its virtual entities attend to.",
            shown["virtual_attention"]: "The same, at four moments, block 1.",
        },
        caveat=(
            "A smoke run: a 5 x 6 board, 40 steps at most and a small agent with centred colours, not the "
            "paper's environment. One seed."
        ),
    )


def best_weights() -> Path | None:
    """The released folder of the paper's own environment with the most steps behind it, if there is any."""
    folders = [folder for folder in sorted(RELEASED.glob("*")) if releasing.is_released(folder)]
    configs = {folder: releasing.read_run_config(Config, folder) for folder in folders}
    paper = [folder for folder, config in configs.items() if config.board.is_the_papers]
    return max(paper, key=lambda folder: load.load(folder).frames, default=None)


def rows_of(results: Mapping[str, Any]) -> list[dict[str, str]]:
    """A table of results: a row for the agent and one for chance."""
    rows = []
    for name, found in results.items():
        low, high = found["interval"]
        rows.append(
            {
                "policy": name,
                "boards solved": f"{found['solved']:.3f}",
                "95 % interval": f"{low:.3f} to {high:.3f}",
                "trap taken": f"{found['died']:.3f}",
                "given up": f"{found['capped']:.3f}",
                "boards": str(found["episodes"]),
            }
        )
    return rows
