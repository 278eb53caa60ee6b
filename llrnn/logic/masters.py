"""The master program of the Neural Turing Machine with location addressing.

The masters of the second-order and the higher-order RNN are `dereliction` and `evaluate`.
"""

from llrnn.logic.term import Term
from llrnn.logic.terms import Fst, LetStar, Snd
from llrnn.logic.tracing import bang, banged, both, lam
from llrnn.logic.types import Lolli, One, Type, With, endo, integer


def dual(a: Type) -> Lolli:
    """Returns A -o 1, the type of linear functionals on A."""
    return Lolli(a, One)


def ntm_state(first: Type, address: Type, content: Type) -> With:
    """Returns the type of states, first & (W & (W' & M)), with W' = W -o 1 and the memory M = W -o V.

    W is the type of read addresses, W' of write addresses, V of the memory's contents.
    """
    return With(first, With(address, With(dual(address), Lolli(address, content))))


def ntm_master(hidden: Type, address: Type, content: Type) -> Term:
    r"""Returns the master of the Neural Turing Machine (Example 2.10), with two corrections.

    It maps ([[m]], [[n]], alpha, beta, u) and the state (h, r, w, M) to

        (M'(r'), r', w', M')   with r' = alpha^m(r), w' = beta^n(w), M' = M + w' (x) u.

    The draft asks for a proof of A -o A with first component M(r) + w'(r') u. No such proof exists: r, w and
    M are used more than once, so the state has to be banged. And by (2.15) the machine reads the updated
    memory at the updated address, M'(r') = M(r') + w'(r') u. The memory's update is a sum of two proofs,
    which needs differential linear logic (`is_plain` returns False for this term).

    Its type is !int_W -o !int_W' -o !(W -o W) -o !(W' -o W') -o !V -o !S -o S', with S = H0 & (W & (W' & M))
    and S' = V & (W & (W' & M)).

    Args:
      hidden: H0, the type of h.
      address: W, the type of read addresses.
      content: V, the type of the memory's contents.
    """
    w_dual = dual(address)

    def step(m: Term, n: Term, alpha: Term, beta: Term, u: Term, s: Term) -> Term:
        r = m(bang(alpha))(Fst(Snd(s)))
        w = n(bang(beta))(Fst(Snd(Snd(s))))
        memory = lam(address, lambda a: Snd(Snd(Snd(s)))(a) + LetStar(w(a), u))
        return both(memory(r), r, w, memory)

    return banged(
        integer(address),
        integer(w_dual),
        endo(address),
        endo(w_dual),
        content,
        ntm_state(hidden, address, content),
        step,
    )
