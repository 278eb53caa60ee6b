"""Fits a line: `python -m experiments.line --config=quick --workdir=DIR`."""

from experiments import runtime

from . import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
