"""The tour stop of the linear logic RNN."""

from pathlib import Path

from experiments import runtime
from experiments.llrnn import figures
from experiments.llrnn.config import Config
from experiments.llrnn.train import BASELINE, main


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in `directory` and returns its page of the tour."""
    results = main(config, workdir=directory)
    longest = config.make_task().train_lengths[1]
    rows = [
        {
            "model": figures.shown(config.baseline.name if name == BASELINE else config.model_name),
            "held-out pairs": f"{1 - result.results[f'held_out_once/error_{longest}']['error']:.3f}",
            "training pairs": f"{1 - result.results[f'train/error_{longest}']['error']:.3f}",
            "seconds": f"{result.train_seconds:.0f}",
            "steps": f"{result.step}",
        }
        for name, result in results.items()
    ]
    return runtime.Stop(
        title="Linear logic RNN: applying programs to operators never seen together in training",
        meaning=(
            "Each input is a pair (k, g): apply the permutation g of five things k times. 8 of the 32 pairs "
            "never occur in training. The higher-order cell learns a linear operator for each g and applies "
            "the linear logic program k, a Church numeral, to it, so it generalizes to new pairs. The LSTM, "
            "with the same training time, learns only the pairs that it was trained on."
        ),
        rows=rows,
        figures={
            directory / "held_out.png": "Accuracy on held-out pairs and on training pairs.",
            directory / "error_by_length.png": f"Error by length; training used up to {longest} pairs.",
        },
        caveat=(
            "The mapping from token k to its program is given; the operators and the read-out are learned. "
            "One seed; results/llrnn has three."
        ),
    )
