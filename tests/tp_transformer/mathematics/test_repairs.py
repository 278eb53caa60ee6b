"""The generator's repairs at import, and the formulas that replace enumeration."""

import importlib
import math
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import sympy

from tp_transformer.mathematics import questions as mathematics_questions
from tp_transformer.mathematics import repairs as mathematics_repairs
from tp_transformer.mathematics.modules import EXTRAPOLATION_MODULES, MODULES
from tp_transformer.mathematics.questions import _flatten
from tp_transformer.mathematics.repairs import (
    REPAIRS,
    _repaired_source,
    import_generator,
    size_and_probability,
)


def test_all_modules_are_there():
    """Our list of names equals the generator's."""
    generator = import_generator()
    assert sorted(_flatten(generator.train(lambda entropy: entropy))) == list(MODULES)
    assert sorted(_flatten(generator.test())) == list(MODULES)
    assert sorted(_flatten(generator.test_extra())) == list(EXTRAPOLATION_MODULES)


def test_nothing_else_is_patched():
    """NumPy and other packages' warnings are unaffected."""
    import_generator()
    assert "object" not in vars(np)
    assert not hasattr(np.ndarray, "itemset")
    with pytest.raises(TypeError):
        __import__("random").randint(0.5, 1.5)
    with pytest.warns(DeprecationWarning, match="ours"):
        warnings.warn("ours", DeprecationWarning, stacklevel=1)


def test_imports_under_the_strictest_warnings(tmp_path):
    """In a new process that compiles the package with all warnings as errors."""
    code = (
        "import sys, types, warnings\n"
        "import numpy, sympy\n"
        f"sys.pycache_prefix = {str(tmp_path)!r}\n"
        "package = types.ModuleType('tp_transformer')\n"  # without the models, so without JAX
        f"package.__path__ = [{str(Path(mathematics_repairs.__file__).parents[1])!r}]\n"
        "sys.modules['tp_transformer'] = package\n"
        "before = list(warnings.filters)\n"
        "from tp_transformer.mathematics.questions import draw\n"
        "draw('train-easy', 'polynomials__expand', 2, seed=0)\n"
        "assert warnings.filters == before, warnings.filters\n"
        "assert 'mathematics_dataset.generate' not in sys.modules  # it would define flags\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr


def test_another_version_is_refused():
    """Source text that does not match the repairs is rejected."""
    with pytest.raises(ImportError, match=r"got 0 occurrences of .*, expected 1; .*1\.0\.1"):
        _repaired_source("mathematics_dataset.sample.polynomials", "import numpy as np\n")
    assert _repaired_source("mathematics_dataset.sample.ops", "anything") == "anything"


def test_repairs_replace_what_they_name():
    """No text to be replaced remains."""
    for repair in REPAIRS:
        text = "\n".join(r.old for r in REPAIRS if r.module == repair.module for _ in range(r.count))
        name = f"mathematics_dataset.{repair.module}"
        repaired = _repaired_source(name, text)
        assert repaired.count(repair.new) >= repair.count
        assert repair.old not in repaired.replace(repair.new, "")


@pytest.mark.parametrize("name", ["math", "no_such_module"])
def test_only_source_code_is_repaired(name):
    with pytest.raises(ImportError, match=f"{name}: got no source code, expected some to repair") as error:
        mathematics_repairs._import_repaired(name)
    assert error.value.name == name


def test_an_early_import_is_refused(monkeypatch):
    """Modules that were imported earlier could not be repaired."""
    name = "mathematics_dataset.util.composition"
    monkeypatch.setattr(mathematics_repairs, "_ORDER", ("util.composition",))
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with pytest.raises(ImportError, match="imported before the repairs could be applied"):
        mathematics_repairs._import_once.__wrapped__()


def _events(count):
    """Draws bags and events as the package does, with the size and probability it enumerates."""
    import_generator()
    modules = importlib.import_module("mathematics_dataset.modules.probability")
    spaces = []
    while len(spaces) < count:
        make = modules._sequence_event if len(spaces) % 2 else modules._level_set_event
        letters, space, variable = modules._swr_space(None, [2, 4])
        event, _ = make(values=letters, length=space.n_samples, verb="pick")
        places = variable.inverse(event)
        if hasattr(places, "events"):
            size = math.prod(len(place.values) for place in places.events)
        else:
            size = len(places.all_sequences())
        if size < 3000:
            spaces.append((variable, event, size, space.probability(places)))
    return spaces


def test_formulas_for_probabilities_are_enumeration():
    """The formulas agree with the package's own count, impossible events included."""
    with mathematics_questions._seeded("events"):
        events = _events(120)
    for variable, event, size, probability in events:
        assert size_and_probability(variable, event) == (size, probability)
    probabilities = [probability for *_, probability in events]
    assert 0 in probabilities
    assert sum(0 < int(probability * 10**6) < 10**6 for probability in probabilities) > 40


def test_a_probability_by_hand():
    """Two a and one b from aaabb: 3 * 2 * 2 of 5 * 4 * 3 in this order, three times as many in any order."""
    import_generator()
    package = importlib.import_module("mathematics_dataset.util.probability")
    bag = package.DiscreteRandomVariable(dict(enumerate("aaabb")))
    variable = package.FiniteProductRandomVariable([bag] * 3)
    in_order = package.FiniteProductEvent([package.DiscreteEvent([letter]) for letter in "aab"])
    assert size_and_probability(variable, in_order) == (18, sympy.Rational(1, 5))
    any_order = package.CountLevelSetEvent({"a": 2, "b": 1})
    assert size_and_probability(variable, any_order) == (54, sympy.Rational(3, 5))
    other = package.FiniteProductEvent([package.DiscreteEvent([letter]) for letter in "aac"])
    assert size_and_probability(variable, other) == (0, 0)
    assert size_and_probability(variable, package.CountLevelSetEvent({"a": 2, "c": 1})) == (0, 0)
