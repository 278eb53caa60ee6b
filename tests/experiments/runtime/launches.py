"""Launches the regression program with several command lines, each in a fork of this process.

Imports dominate the cost of a command line that ends soon; here they are paid once. Reads lines of JSON, each
with the current directory, the arguments, and whether the run is real, and answers each with a line: the exit
status, and what was printed. A run that is not real raises the error of its seed in `ENDS`, or says where it
would have been and for how many steps.
"""

import dataclasses
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import regression  # pyrefly: ignore[missing-import]

from experiments import runtime

ENDS = {
    101: runtime.NonFiniteLoss("the loss is nan", 3, Path("runs/20")),
    102: runtime.CheckpointError("none of the 2 checkpoints can be restored"),
    103: runtime.Preempted("stopped by SIGTERM at step 5"),
    104: runtime.WorkdirError("the workdir is in use"),
}
"""Errors of runs, by seed."""


def main(config, *, workdir, parallel):
    """Stands for a run."""
    if config.seed in ENDS:
        raise ENDS[config.seed]
    print(f"{workdir}: {parallel}, {config.steps} steps", file=sys.stderr)


def launch(directory, arguments, real):
    """Returns the exit status and the output of the program for a command line."""
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.chdir(directory)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = ["regression", *arguments]
            experiment = regression.EXPERIMENT
            try:
                runtime.launch(experiment if real else dataclasses.replace(experiment, main=main))
            except SystemExit as end:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(int(end.code or 0))  # to free all that was imported would take longer than the rest
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read()


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(launch(*json.loads(line))), flush=True)
