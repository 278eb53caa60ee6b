"""Whether a question of SQuAD 2.0 has an answer."""

from folnet.tasks.squad_questions import Gold, Question


def test_answerable():
    """With gold answers and without."""
    assert Question("0", "Who?", "A dog.", (Gold("dog", 2),)).answerable
    assert not Question("0", "Who?", "A dog.", ()).answerable
