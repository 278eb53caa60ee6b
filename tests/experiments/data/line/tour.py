"""What the tour shows of a line."""

from pathlib import Path

from experiments import runtime

from .config import Config
from .train import main


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Fits it there."""
    result = main(config, workdir=directory)
    slope = float(result.params["slope"])
    return runtime.Stop(
        "A line", "Its slope is learned.", [{"model": "line", "slope": f"{slope:.3f}"}], {}, "It is a line."
    )
