"""One of several processes that run an artifact together; prints its outputs.

python exporting/on_processes.py ARTIFACT INPUTS.npz ADDRESS COUNT NUMBER
"""

import json
import runpy
import sys
from pathlib import Path

import jax
import numpy as np

if __name__ == "__main__":
    artifact, inputs, address, count, number = sys.argv[1:]
    jax.distributed.initialize(address, int(count), int(number), heartbeat_timeout_seconds=30)
    runner = Path(__file__).parents[3] / "experiments" / "exporting" / "run_exported.py"
    model = runpy.run_path(str(runner))["load"](artifact)
    with np.load(inputs) as arrays:
        outputs = model(dict(arrays))
    print(json.dumps({name: array.tolist() for name, array in outputs.items()}))
