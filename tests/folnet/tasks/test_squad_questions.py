"""A question knows whether it has an answer."""

from folnet.tasks.squad_questions import Gold, Question


def test_answerable():
    """Gold answers or none."""
    assert Question("0", "Who?", "A dog.", (Gold("dog", 2),)).answerable
    assert not Question("0", "Who?", "A dog.", ()).answerable
