"""Trains a model on a task: `python -m experiments.reasoning --config=PRESET --workdir=DIR`.

Tasks are language models' bytes, distances in graphs, boxes of BoxWorld, a published setting of composed
relations, and those of the suite; see `config` for the presets.
"""

from experiments import runtime
from experiments.reasoning import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
