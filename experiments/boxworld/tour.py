"""The tour stop of BoxWorld."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.boxworld import load
from experiments.boxworld.config import Config
from experiments.boxworld.train import main
from experiments.runtime import releasing


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in `directory` and returns its page of the tour."""
    from experiments.boxworld import analysis  # imported here: training does not need Matplotlib

    result = main(config, workdir=directory)
    trained = load.load(best_weights() or directory)
    shown = analysis.draw_episode(trained, directory / "episode", formats=("gif",))
    frames = result.step * config.frames_per_step
    is_own = trained.run == config
    whose = (
        "the agent trained here" if is_own else f"a released {trained.name} after {trained.frames:.3g} steps"
    )
    # A relational agent has no virtual entities.
    attention = shown.get("virtual_attention", shown["landmark_attention"])
    return runtime.Stop(
        title="2-simplicial Transformer: keys, locks and a box that must not be opened",
        meaning=(
            "The agent sees a board of coloured tiles. It has to pick up the loose key and open the box of "
            "the same colour, which contains the white Gem; opening the other box ends the episode. It is "
            f"trained with IMPALA on rewards alone: {frames / 1e6:.1f} million steps in "
            f"{result.train_seconds:.0f} s. Its attention relates each entity to other entities and to pairs "
            "of virtual entities."
        ),
        rows=rows_of(result.results),
        figures={
            directory / "solved.png": "Fraction of training episodes solved, with 95% intervals.",
            shown["episode.gif"]: f"An episode played by {whose}, with its attention.",
            attention: "Its attention at four time steps, block 1.",
        },
        caveat=(
            "A smoke run, not the paper's environment: 5 x 6 boards, at most 40 steps, a small agent with "
            "centred colours, one seed."
        ),
    )


def best_weights() -> Path | None:
    """Returns the released folder with the most training steps on the paper's environment, or None."""
    models = releasing.released().items()
    folders = [folder for name, folder in models if name.startswith(f"{Config.experiment}/")]
    paper = [folder for folder in folders if releasing.read_run_config(Config, folder).board.is_the_papers]
    return max(paper, key=lambda folder: load.load(folder).frames, default=None)


def rows_of(results: Mapping[str, Any]) -> list[dict[str, str]]:
    """Formats a run's results as a table with one row per policy, including "chance"."""
    return [
        {
            "policy": name,
            "boards solved": f"{found['solved']:.3f}",
            "95% interval": "{:.3f} to {:.3f}".format(*found["interval"]),
            "trap taken": f"{found['died']:.3f}",
            "given up": f"{found['capped']:.3f}",
            "boards": str(found["episodes"]),
        }
        for name, found in results.items()
    ]
