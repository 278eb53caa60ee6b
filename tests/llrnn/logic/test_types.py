import pytest

from llrnn import logic
from llrnn.logic import Atom, Bang, Lolli, One, Tensor, With
from llrnn.logic.types import dimension, finite_dimensional

A, B = Atom("A", 3), Atom("B", 2)


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (logic.integer(A), "!(A -o A) -o A -o A"),
        (logic.binary(A), "!(A -o A) -o !(A -o A) -o A -o A"),
        (Lolli(Lolli(A, B), One), "(A -o B) -o 1"),
        (Tensor(A, With(B, One)), "A (x) (B & 1)"),
        (Lolli(Tensor(A, B), With(A, B)), "A (x) B -o A & B"),
        (With(With(A, A), A), "(A & A) & A"),
        (Bang(Bang(A)), "!!A"),
        (Bang(Tensor(A, Bang(B))), "!(A (x) !B)"),
    ],
)
def test_types_print_as_on_paper(of, text):
    assert str(of) == text == repr(of)


def test_types_are_equal_when_alike_and_hash_so():
    assert Lolli(A, Bang(B)) == Lolli(Atom("A", 3), Bang(Atom("B", 2)))
    assert hash(logic.integer(A)) == hash(logic.integer(Atom("A", 3)))
    assert Atom("A", 3) != Atom("A", 4)
    assert Tensor(A, B) != With(A, B)
    assert One == One()
    assert len({One, One()}) == 1


def test_dimensions_multiply_add_and_stop_at_a_bang():
    assert dimension(Tensor(A, With(B, One))) == 9
    assert dimension(Lolli(With(A, B), Tensor(A, B))) == 30
    assert finite_dimensional(Lolli(A, B))
    assert not finite_dimensional(Lolli(A, Bang(B)))
    with pytest.raises(ValueError, match="t: got !B, expected a type without !"):
        dimension(Tensor(A, Bang(B)))


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "3"])
def test_an_atom_needs_a_positive_integer_dimension(size):
    with pytest.raises(ValueError, match=r"dimension of atom A: got .*, expected an integer of at least 1"):
        Atom("A", size)


def test_what_is_not_a_type_is_refused_by_name():
    with pytest.raises(ValueError, match="right: got 3, expected a type as part of Tensor"):
        Tensor(A, 3)  # pyrefly: ignore
    with pytest.raises(ValueError, match="name: got '', expected a non-empty string"):
        Atom("", 2)
