"""Defaults are those of the file `test_defaults.json`, until a change is meant.

`python -m tests.tp_transformer.test_defaults` writes the file anew: its difference is what a change does.
"""

from tests import defaults


def test_defaults_are_those_of_the_file():
    defaults.check("tp_transformer", __file__)


if __name__ == "__main__":
    defaults.write("tp_transformer", __file__)
