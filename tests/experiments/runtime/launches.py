"""Launches the regression program with one command line after another, each in a fork of this process.

Imports are most of what a refused command line costs; this way they are paid once. Reads a JSON list of lists
of arguments, prints a JSON list of exit statuses and what was written to standard error.
"""

import json
import os
import sys
import tempfile

import regression  # pyrefly: ignore[missing-import]

from experiments import runtime


def launch(arguments):
    """Returns the exit status and standard error of the program for a command line."""
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            sys.argv = ["regression", *arguments]
            runtime.launch(regression.EXPERIMENT)
        _, status = os.waitpid(child, 0)
        errors.seek(0)
        return os.waitstatus_to_exitcode(status), errors.read()


if __name__ == "__main__":
    print(json.dumps([launch(arguments) for arguments in json.load(sys.stdin)]))
