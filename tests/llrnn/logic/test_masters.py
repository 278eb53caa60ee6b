import numpy as np
import pytest

from llrnn import logic
from llrnn.logic import Atom, Bang, Lolli, check, denote, dense, dual, endo, integer, ntm_master, ntm_state

N, M = 5, 3
H, W, V = Atom("H", 2), Atom("W", N), Atom("V", M)


def test_slip_1_the_corrected_master_has_a_banged_state():
    master = ntm_master(H, W, V)
    of = check(master)
    arguments = []
    while isinstance(of, Lolli) and isinstance(of.domain, Bang):
        arguments.append(of.domain.body)
        of = of.codomain
    assert arguments == [integer(W), integer(dual(W)), endo(W), endo(dual(W)), V, ntm_state(H, W, V)]
    assert of == ntm_state(V, W, V)
    assert not logic.is_plain(master)  # the memory is a sum


@pytest.mark.parametrize(("m", "n"), [(0, 0), (1, 2), (3, 1)])
def test_slip_1_it_reads_the_updated_memory_at_the_updated_address(m, n, rng):
    alpha, beta = rng.normal(size=(2, N, N))
    u, h = rng.normal(size=M), rng.normal(size=2)
    r, w = rng.normal(size=(2, N))
    memory = rng.normal(size=(M, N))
    run = denote(ntm_master(H, W, V))
    powers = denote(logic.numeral(m, W)), denote(logic.numeral(n, dual(W)))
    read, (address, (write, updated)) = dense(run(*powers, alpha, beta, u, (h, (r, (w, memory)))))
    # beta acts on W' = W -o 1, whose coordinates are those of the functional.
    r_new, w_new = np.linalg.matrix_power(alpha, m) @ r, np.linalg.matrix_power(beta, n) @ w
    memory_new = memory + np.outer(u, w_new)
    for got, want in ((read, memory_new @ r_new), (address, r_new), (write, w_new), (updated, memory_new)):
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)
    # (2.15), and not the draft's M(r) + beta^n(w)(alpha^m(r)) u with the address before it moves.
    np.testing.assert_allclose(read, memory @ r_new + (w_new @ r_new) * u, rtol=1e-10, atol=1e-10)
    if m:
        assert np.abs(read - (memory @ r + (w_new @ r_new) * u)).max() > 1e-2


def test_commands_move_the_addresses_by_superpositions_of_powers(rng):
    """With alpha = R and beta = R* the update of the paper: w' = sum_i s_i (R*)^i w, r' = sum_i q_i R^i r."""
    rotation = np.roll(np.eye(N), 1, axis=0)
    s, q = rng.dirichlet(np.ones(N), size=2)
    r, w = rng.dirichlet(np.ones(N), size=2)
    u, memory = rng.normal(size=M), rng.normal(size=(M, N))
    run = denote(ntm_master(H, W, V))
    commands = logic.numeral_span(N - 1, W).denote(q), logic.numeral_span(N - 1, dual(W)).denote(s)
    state = (np.zeros(2), (r, (w, memory)))
    read, (address, (write, updated)) = dense(run(*commands, rotation, rotation.T, u, state))
    r_new = sum(q[i] * np.roll(r, i) for i in range(N))
    w_new = sum(s[i] * np.roll(w, -i) for i in range(N))
    np.testing.assert_allclose(address, r_new, rtol=1e-10)
    np.testing.assert_allclose(write, w_new, rtol=1e-10)
    np.testing.assert_allclose(updated, memory + np.outer(u, w_new), rtol=1e-10)
    np.testing.assert_allclose(read, (memory + np.outer(u, w_new)) @ r_new, rtol=1e-10)
