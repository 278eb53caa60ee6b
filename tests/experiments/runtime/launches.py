"""Launches the regression program with several command lines, each in a fork of this process.

Imports dominate the cost of an invalid command line; here they are paid once. Reads a JSON list of lists of
arguments, and prints a JSON list of exit statuses and standard errors.
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
