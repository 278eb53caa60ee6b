"""Defaults of all functions, methods and fields are those of the record."""

from tests import defaults, recorded


def test_defaults_are_those_of_the_record():
    recorded.check(__file__, "defaults", defaults.of_package("experiments"))
