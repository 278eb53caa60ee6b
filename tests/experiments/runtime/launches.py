"""Launches the regression program with several command lines, each in a fork of this process.

Imports dominate the cost of an invalid command line; here they are paid once. Reads a JSON list of lists of
arguments, and prints a JSON list of exit statuses and standard errors. A run raises the error of its seed in
`ENDS`, or says where it would have been and for how many steps.
"""

import dataclasses
import json
import os
import sys
import tempfile
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


def launch(arguments):
    """Returns the exit status and standard error of the program for a command line."""
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            sys.argv = ["regression", *arguments]
            try:
                runtime.launch(dataclasses.replace(regression.EXPERIMENT, main=main))
            except SystemExit as end:
                sys.stderr.flush()
                os._exit(int(end.code or 0))  # to free all that was imported would take longer than the rest
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), errors.read()


if __name__ == "__main__":
    print(json.dumps([launch(arguments) for arguments in json.load(sys.stdin)]))
