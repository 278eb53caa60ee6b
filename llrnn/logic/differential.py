r"""The derivative of a program, as a program of differential linear logic."""

from llrnn.logic.normalize import normalize
from llrnn.logic.terms import IllTyped, Ket, Term, excerpt, need_terms
from llrnn.logic.tracing import banged, lam
from llrnn.logic.types import Bang, Lolli


def derivative(term: Term) -> Term:
    r"""The derivative of term : !A -o B as a term !A -o A -o B: \!x. \v. term |v>_x, its cuts eliminated.

    [[derivative(term)]](|>_P, v) is the directional derivative of [[term]]_nl at P along v, what `jax.jvp`
    computes of the denotation; here the program is differentiated (Clift & Murfet; Remark 2.13 of Hu & Murfet
    2017). B is what is left of the type after the first argument, further banged arguments included. The
    derivative can be differentiated again: the second one has type !A -o A -o A -o B.

    Raises:
      IllTyped: the type is not of the form !A -o B.
      LinearityError: the term is closed and not a proof.
    """
    need_terms(term=term)
    of = term.type
    if not isinstance(of, Lolli) or not isinstance(of.domain, Bang):
        raise IllTyped(f"only a term of type !A -o B has a derivative, but `{excerpt(term)}` has type {of}")
    point = of.domain.body
    return normalize(banged(point, lambda x: lam(point, lambda v: term(Ket(x, (v,))))))
