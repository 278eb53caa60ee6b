"""What the tour shows of the linear logic RNN."""

from pathlib import Path

from experiments import runtime
from experiments.llrnn import figures
from experiments.llrnn.config import Config
from experiments.llrnn.train import BASELINE, main


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in a directory, and says what is to be seen there."""
    results = main(config, workdir=directory)
    longest = config.make_task().train_lengths[1]
    rows = [
        {
            "model": figures.shown(config.baseline.name if name == BASELINE else config.cell.name),
            "held-out pairs": f"{1 - result.results[f'held_out_once/error_{longest}']['error']:.3f}",
            "trained pairs": f"{1 - result.results[f'train/error_{longest}']['error']:.3f}",
            "seconds": f"{result.train_seconds:.0f}",
            "steps": f"{result.step}",
        }
        for name, result in results.items()
    ]
    return runtime.Stop(
        title="Linear logic RNN: programs applied to operators they were never trained with",
        meaning=(
            "Each input is a pair (k, g): apply the permutation g of five things k times. Of the 32 pairs 8 "
            "never occur in training. The higher-order cell learns a linear operator for each g and runs "
            "the linear logic program k, the Church numeral, on it; so a new pair is nothing new to it. The "
            "LSTM, given the same time, learns the pairs it is shown."
        ),
        rows=rows,
        figures={
            directory
            / "held_out.png": "Accuracy at a pair never trained, after trained ones; and over trained pairs.",
            directory / "error_by_length.png": f"Trained on sequences of up to {longest} pairs.",
        },
        caveat=(
            "The coupling of token k to the program k is given, not learned; the operators and the read-out "
            "are learned. One seed; three are in results/llrnn."
        ),
    )
