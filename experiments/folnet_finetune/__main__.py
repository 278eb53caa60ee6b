"""Fine-tunes FOLNet on a task: `python -m experiments.folnet_finetune --config=rte --workdir=DIR`."""

from experiments import runtime
from experiments.folnet_finetune import EXPERIMENT

if __name__ == "__main__":
    runtime.launch(EXPERIMENT)
