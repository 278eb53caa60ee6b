"""The question generator of Saxton et al. (2019), made to run on current Python, NumPy and SymPy.

`mathematics_dataset` 1.0.1 was written for Python 3.5 to 3.7 and has not changed since. What stops it today
is mended in its source text as it is imported, in its own modules only: nothing is patched into NumPy,
`random` or SymPy, where others would meet it, and no warning is silenced. Every repair names the text it
expects and how often, so another version of the package is refused instead of being half mended.
"""

import collections
import dataclasses
import functools
import importlib
import importlib.machinery
import importlib.util
import math
import sys
import threading
import types
from typing import Any

PACKAGE = "mathematics_dataset"


@dataclasses.dataclass(frozen=True)
class Repair:
    """One piece of the package's text, what to put there, and why."""

    module: str
    """Name of the module below the package."""

    old: str
    new: str
    why: str

    count: int = 1
    """How often `old` occurs."""


_REPAIRS = (
    Repair(
        "sample.polynomials",
        "from sympy.solvers.diophantine import base_solution_linear",
        "from sympy.solvers.diophantine.diophantine import base_solution_linear",
        "SymPy 1.6 made a package of the module",
    ),
    Repair("sample.polynomials", "np.object", "object", "NumPy 1.24 removed the alias", 3),
    Repair(
        "sample.polynomials",
        "coeffs.itemset(index, value)",
        "coeffs[index] = value",
        "NumPy 2 removed ndarray.itemset",
    ),
    Repair(
        "sample.polynomials",
        "expanded_coefficients.itemset(power, coeffs)",
        "expanded_coefficients[power] = coeffs",
        "NumPy 2 removed ndarray.itemset",
    ),
    Repair(
        "modules.numbers",
        "remainder_divisor / 2",
        "remainder_divisor // 2",
        "Python 3.12 refuses floats in random.randint; half a power of ten is whole",
        2,
    ),
    # These three change no question's probability. Without them a question depends on the hash seed of the
    # process and on memory addresses, and a seed would not determine it.
    Repair(
        "util.composition",
        "random.choice(list(allowed))",
        "random.choice(sorted(allowed))",
        "the order of a set of letters differs from process to process",
    ),
    Repair(
        "util.composition",
        "entities = set(context.child_entities)",
        "entities = dict.fromkeys(context.child_entities)",
        "the order of a set of objects follows their addresses",
    ),
    Repair(
        "util.composition",
        "entities.add(maybe_entity)",
        "entities[maybe_entity] = None",
        "goes with the one above",
    ),
)

_SHORTCUTS = (
    Repair(
        "sample.number",
        "sympy.gcd(value, coprime_to) == 1",
        "math.gcd(value, coprime_to) == 1",
        "SymPy makes polynomials of both integers first; every module draws integers",
    ),
    Repair(
        "sample.polynomials",
        "if polynomial.is_constant():",
        "if not polynomial.free_symbols:",
        "it is expanded, so that nothing needs to be simplified to see it",
    ),
    Repair(
        "modules.comparison",
        "len(sympy.FiniteSet(*values)) == len(values)",
        "len(set(map(sympy.sympify, values))) == len(values)",
        "a FiniteSet is also sorted",
    ),
    Repair(
        "modules.probability",
        """    event_in_space = random_variable.inverse(event)
    if too_big(event_in_space):
      continue
    answer = space.probability(event_in_space)
""",
        """    size, answer = size_and_probability(random_variable, event)
    if size > int(2e5):
      continue
""",
        "there are formulas for what is enumerated, up to millions of sequences at a time",
    ),
    Repair(
        "modules.probability",
        "import numpy as np\n",
        "import numpy as np\nfrom tp_transformer.mathematics.repairs import size_and_probability\n",
        "goes with the one above",
    ),
)

REPAIRS = _REPAIRS + _SHORTCUTS
"""What keeps the package from running, or from giving what the seed says; and shortcuts that change no
question.

With the shortcuts the whole training set takes 71 core hours instead of 137, the tests of extrapolation 20
minutes instead of six and a half hours.
"""

_ORDER = (
    "sample.number",
    "sample.polynomials",
    "util.composition",
    "modules.comparison",
    "modules.numbers",
    "modules.probability",
)
"""The modules with repairs, such that none is imported, unrepaired, by one before it."""

_lock = threading.Lock()


def _repaired_source(name: str, source: str) -> str:
    """The text of a module, repaired; ImportError if the repairs were not written for it."""
    for repair in REPAIRS:
        if f"{PACKAGE}.{repair.module}" != name:
            continue
        if (found := source.count(repair.old)) != repair.count:
            raise ImportError(
                f"{name}: {repair.old!r} occurs {found} times where {repair.count} were expected; the "
                f"repairs are written for {PACKAGE} 1.0.1",
                name=name,
            )
        source = source.replace(repair.old, repair.new)
    return source


def _import_repaired(name: str) -> None:
    """Imports one module of the package from its repaired text."""
    spec = importlib.util.find_spec(name)
    loader = spec and spec.loader
    source = loader.get_source(name) if isinstance(loader, importlib.machinery.SourceFileLoader) else None
    if spec is None or source is None or spec.origin is None:
        raise ImportError(f"{name}: its source is not there to be repaired", name=name)
    module = importlib.util.module_from_spec(spec)
    code = compile(_repaired_source(name, source), spec.origin, "exec", dont_inherit=True)
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    parent, _, child = name.rpartition(".")
    setattr(sys.modules[parent], child, module)


@functools.cache
def _import_once() -> types.ModuleType:
    names = [f"{PACKAGE}.{module}" for module in _ORDER]
    if early := [name for name in names if name in sys.modules]:
        raise ImportError(f"{', '.join(early)} was imported before it could be repaired", name=early[0])
    for name in names:
        _import_repaired(name)
    return importlib.import_module(f"{PACKAGE}.modules.modules")


def import_generator() -> types.ModuleType:
    """The package's `modules.modules`, repaired; imported at the first call, which takes a second or two.

    Raises:
        ImportError: the package is missing, is another version, or was imported unrepaired by someone else.
    """
    with _lock:
        return _import_once()


def size_and_probability(random_variable: Any, event: Any) -> tuple[int, Any]:
    """What the probability modules ask for, by formula: letters drawn from a bag without replacement.

    Of m_a letters a among n, the event takes c_a, k in all. In a given order there are prod_a m_a^c_a ways to
    take them with replacement and prod_a m_a! / (m_a - c_a)! without, of n! / (n - k)! ways to take any; and
    if the order is free, k! / prod_a c_a! orders.

    The variable is the package's `FiniteProductRandomVariable` of k equal draws from the bag, the event its
    `FiniteProductEvent` of single letters (a sequence) or `CountLevelSetEvent` (how many of each).

    Returns:
        Number of sequences of places in the bag that the event stands for, places taken twice among them: by
        this the package tells whether it is too large to enumerate. And the probability, a SymPy rational.
    """
    import sympy

    (draw,) = set(random_variable._random_variables)
    bag = {letter: len(places) for letter, places in draw._inverse.items()}
    if hasattr(event, "counts"):
        taken = event.counts
        orders = math.factorial(sum(taken.values())) // math.prod(map(math.factorial, taken.values()))
    else:
        taken = collections.Counter(letter for place in event.events for letter in place.values)
        orders = 1
    size = orders * math.prod(bag.get(letter, 0) ** count for letter, count in taken.items())
    ways = orders * math.prod(math.perm(bag.get(letter, 0), count) for letter, count in taken.items())
    return size, sympy.Rational(ways, math.perm(sum(bag.values()), sum(taken.values())))
