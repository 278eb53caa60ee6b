"""Claims as data: what a comparison fixes before its seeds run, and the lines that its results become.

A room's `claims.py` declares `Comparison`s. Each fixes the models (ours first), their parameter counts, step
budgets, search grids, search seeds and reported seeds, and the `Claim`s that are read from its runs.
`claiming` trains what a comparison needs and writes one line for each claim to `claims.jsonl`; `claim_tables`
writes the tables of the pages from those lines.

A line states whether its claim holds. `verdict` decides that from the numbers in the line alone, so that
anyone can check it.
"""

import ast
import dataclasses
import hashlib
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from experiments.runtime.claim_lines import FILE, Line, Test, hardware, read, verdict, write
from experiments.runtime.config import RunConfig, from_dict
from experiments.runtime.looping import FitResult
from experiments.runtime.workdir import EXPERIMENT, config_dict, flatten

__all__ = [
    "FILE",
    "TOLERANCE",
    "Claim",
    "Comparison",
    "Line",
    "Model",
    "Run",
    "Test",
    "changes",
    "equal_time",
    "hardware",
    "read",
    "settled",
    "verdict",
    "write",
]

_APART = ("claims", "models", "measure", "with_data", "data_command", "figures", "diverged")
"""The fields of a comparison that a declaration holds in another form, or not at all."""
_COMPARING: set[Test] = {"unpaired", "paired"}
"""The tests of means or pairs."""
TOLERANCE = 0.02
"""Compared models may differ by this share in parameters, and in the time that "equal time" gives them."""


class Run(NamedTuple):
    """A finished run of a comparison, from which its measurements are taken."""

    result: FitResult
    config: Any
    workdir: Path


@dataclasses.dataclass(frozen=True)
class Claim:
    """One sentence about the models of a comparison, and how it is tested.

    Attributes:
        id: its name, unique among all claims: the comparison's name, or that name and a part after a dot.
        claim: the sentence.
        measure: what is measured, in words.
        value: which of the run's measurements it is: a key of what `Comparison.measure` returns.
        budget: which of the models' step budgets the runs have.
        higher_is_better: the direction of the measure.
        tests: what must be true; () reports the numbers without a hypothesis.
        target: the value that the tests "threshold" and "mean" ask for.
        share: the share of seeds that must reach the target.
        paper: what the paper reports, if it does.
        ours: the name of the model that it is about; "" for the comparison's first.
        against: the names of the models that it is compared with; () for all others.
        expected: whether it was expected to hold; None if nobody said.
    """

    id: str
    claim: str
    measure: str
    value: str
    budget: str = ""
    higher_is_better: bool = True
    tests: tuple[Test, ...] = ()
    target: float | None = None
    share: float = 1.0
    paper: str | None = None
    ours: str = ""
    against: tuple[str, ...] = ()
    expected: bool | None = None


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of a comparison.

    Attributes:
        name: how tables show it.
        config: the config of its runs, without a baseline of its own; the runner sets `seed` and `steps`.
        parameters: the number of its parameters; a run that has another number is refused.
        steps: the config's `steps`, for each budget if there are several. Runs are compared by `updates`.
        search: the settings searched, as values by the dotted names of config fields; with one setting
            nothing is searched and it is used.
        num_seeds: how many of the comparison's seeds it is run with; 0 for all.
        compared: whether the tests compare ours with it; otherwise it is only reported.
        step_seconds: seconds per step on a quiet machine, from which "equal time" is derived (`equal_time`).
        exception: why it may differ from our model in parameters or in the size of its search; "" if it does
            not.
    """

    name: str
    config: RunConfig
    parameters: int
    steps: int | Mapping[str, int]
    search: tuple[Mapping[str, Any], ...] = ({},)
    num_seeds: int = 0
    compared: bool = True
    step_seconds: float | None = None
    exception: str = ""

    @property
    def budgets(self) -> dict[str, int]:
        """The number of updates for each budget."""
        return {"": self.steps} if isinstance(self.steps, int) else dict(self.steps)

    def updates(self, budget: str) -> int:
        """The number of updates for a budget with those of restarts, at most."""
        return self.budgets[budget] + self.config.further_steps

    def configured(self, settings: Mapping[str, Any], seed: int, steps: int) -> Any:
        """Returns the config of a run with these settings, which are checked.

        Raises:
            ValueError: a setting that is no field of the config, or a value that the config refuses.
        """
        config: Any = self.config
        for name, value in settings.items():
            config = _replaced(config, name.split("."), value, f"{self.name}: search")
        config = dataclasses.replace(config.with_steps(steps), seed=seed, session_seconds=0.0)
        config.validate()
        return config


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Models compared with each other, fixed before the reported seeds run.

    Models and claims may be added later, if every earlier claim names the models that it is compared with and
    the tests have a `family`: what was reported then stays as it is.

    Attributes:
        name: the first part of its claims' ids.
        claims: what is read from the runs.
        models: ours first, then the baselines, unless claims name them; the parameters, searches and budgets
            of all are compared with those of the first.
        measure: from a finished run to what was measured, as values that JSON can hold.
        seeds: the seeds of the reported runs.
        search_seeds: the seeds of the search; none of them is reported.
        search_by: the measurement that the search optimizes, in its mean over the search seeds.
        search_higher_is_better: the direction of that measurement.
        search_steps: the number of updates in the search; 0 for each model's first budget.
        level: the confidence level of the tests, before it is corrected for their number.
        family: that number, if tests of several comparisons are reported together; 0 for the claims of this
            one that compare means or pairs.
        with_data: from a config and the folder of `--data` to a config that reads it; None if the comparison
            needs no data from outside.
        data_command: what makes that folder, for messages.
        figures: from the lines of the reported runs by model, of the first claim's budget, to figures by the
            names of their files in the folder of results, without `.png`.
        diverged: from the config of a reported run whose loss or parameters were not finite to the
            measurements that it counts with; None to end the session instead, since nothing was declared.
    """

    name: str
    claims: tuple[Claim, ...]
    models: tuple[Model, ...]
    measure: Callable[[Run], Mapping[str, Any]]
    seeds: tuple[int, ...]
    search_seeds: tuple[int, ...] = ()
    search_by: str = ""
    search_higher_is_better: bool = True
    search_steps: int = 0
    level: float = 0.95
    family: int = 0
    with_data: Callable[[Any, Path], Any] | None = None
    data_command: str = ""
    figures: Callable[[Mapping[str, Sequence[Line]]], Mapping[str, Any]] | None = None
    diverged: Callable[[Any], Mapping[str, Any]] | None = None

    @property
    def corrected_level(self) -> float:
        """The level of each test, by Bonferroni."""
        count = self.family or sum(bool(_COMPARING & {*claim.tests}) for claim in self.claims)
        return 1 - (1 - self.level) / max(count, 1)

    def models_of(self, claim: Claim) -> list[Model]:
        """The models of a claim, ours first."""
        ours = claim.ours or self.models[0].name
        others = claim.against or tuple(model.name for model in self.models if model.name != ours)
        by_name = {model.name: model for model in self.models}
        return [by_name[name] for name in (ours, *others)]

    def seeds_of(self, model: Model) -> tuple[int, ...]:
        """The reported seeds of a model."""
        return self.seeds[: model.num_seeds or len(self.seeds)]

    def check(self) -> None:
        """Checks that the comparison is complete and fair.

        Raises:
            ValueError: naming what is missing or unfair.
        """
        names = [model.name for model in self.models]
        if len(set(names)) < len(names) or not names:
            raise ValueError(f"{self.name}: models: got {names}, expected at least one, with different names")
        self._check_claims()
        for what, seeds in (("seeds", self.seeds), ("search_seeds", self.search_seeds)):
            if len(set(seeds)) < len(seeds):
                raise ValueError(f"{self.name}: {what}: got {seeds}, expected different ones")
        if not self.seeds or set(self.seeds) & set(self.search_seeds):
            raise ValueError(
                f"{self.name}: seeds: got {self.seeds}, expected at least one, and none of the search seeds "
                f"{self.search_seeds}"
            )
        for model in self.models:
            self._check_model(model)

    def _check_claims(self) -> None:
        for claim in self.claims:
            if claim.id != self.name and not claim.id.startswith(f"{self.name}."):
                raise ValueError(f"id: got {claim.id!r}, expected {self.name!r} or {self.name + '.PART'!r}")
            names, named = [model.name for model in self.models], [claim.ours, *claim.against]
            named[0] = named[0] or names[0]
            if set(named) - set(names) or len(set(named)) < len(named):
                raise ValueError(
                    f"{claim.id}: ours and against: got {named}, expected different names of {names}"
                )
            if unknown := set(claim.tests) - set(get_args(Test)):
                raise ValueError(f"{claim.id}: tests: got {unknown}, expected some of {get_args(Test)}")
            if ({"threshold", "mean"} & {*claim.tests}) and claim.target is None:
                raise ValueError(f"{claim.id}: target: got None, expected a number for {claim.tests}")
            if _COMPARING & {*claim.tests}:
                models = [model for model in self.models_of(claim) if model.compared]
                counts = [len(self.seeds_of(model)) for model in models]
                if len(counts) < 2 or min(counts) < 2:
                    raise ValueError(
                        f"{claim.id}: got {len(counts) - 1} compared baselines and {counts} seeds, expected "
                        f"at least one baseline and 2 seeds of each model for {claim.tests}"
                    )
            if not 0 < claim.share <= 1:
                raise ValueError(f"{claim.id}: share: got {claim.share}, expected more than 0 and at most 1")

    def _check_model(self, model: Model) -> None:
        ours, where = self.models[0], f"{self.name}: {model.name}"
        if len(model.search) != 1 and not (model.search and self.search_seeds and self.search_by):
            raise ValueError(
                f"{where}: search: got {len(model.search)} settings, expected one, or a comparison with "
                "search_seeds and search_by"
            )
        if model.config.max_seconds:
            raise ValueError(
                f"{where}: max_seconds: got {model.config.max_seconds}, expected 0: no reported run stops by "
                "the clock"
            )
        for claim in self.claims:
            if claim.budget not in model.budgets:
                raise ValueError(f"{where}: steps: got {model.steps}, expected the budget {claim.budget!r}")
        least = min(self.seeds + self.search_seeds)  # configs require seeds of at least 0, and no more
        for settings in model.search:
            model.configured(settings, least, max(model.budgets.values()))
        if model is ours or not model.compared:
            return
        for budget in {claim.budget for claim in self.claims}:
            self._check_budget(model, budget)
        if model.exception:
            return
        if abs(model.parameters - ours.parameters) > TOLERANCE * ours.parameters:
            raise ValueError(
                f"{where}: parameters: got {model.parameters:,}, expected {ours.parameters:,} within "
                f"{TOLERANCE:.0%}, or an exception with its reason"
            )
        if len(model.search) != len(ours.search):
            raise ValueError(
                f"{where}: search: got {len(model.search)} settings, expected {len(ours.search)} as of "
                f"{ours.name}, or an exception with its reason"
            )

    def _check_budget(self, model: Model, budget: str) -> None:
        ours, where = self.models[0], f"{self.name}: {model.name}: steps[{budget!r}]"
        steps, expected = model.updates(budget), ours.updates(budget)
        if budget.endswith("equal_time"):
            if model.step_seconds is None or ours.step_seconds is None:
                raise ValueError(f"{where}: got no step_seconds, expected those of both models")
            steps, expected = steps * model.step_seconds, expected * ours.step_seconds
        if abs(steps - expected) > TOLERANCE * expected:
            raise ValueError(f"{where}: got {steps:.6g}, expected {expected:.6g} as of {ours.name}")

    def declaration(self) -> dict[str, Any]:
        """Returns what is fixed beforehand, as JSON holds it; not how the paper's result is quoted."""
        measure = getattr(self.measure, "__qualname__", repr(self.measure))
        models = []
        for model in self.models:
            fields = {
                field.name: getattr(model, field.name)
                for field in dataclasses.fields(model)
                if field.name != "config"
            }
            models.append({**fields, "config": settled(model.config)})
        later = {"ours", "against", "expected"}  # older declarations do not have them
        claims = [
            {
                name: value
                for name, value in dataclasses.asdict(claim).items()
                if name != "paper" and not (name in later and value in ("", (), None))
            }
            for claim in self.claims
        ]
        own = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in _APART
        }
        found = {**own, "measure": measure, "measure_code": _code(self.measure), "claims": claims}
        if self.diverged is not None:  # older declarations do not have it
            found["diverged_code"] = _code(self.diverged)
        found["models"] = models
        return json.loads(json.dumps(found, default=dict))

    def differences(self, declared: Mapping[str, Any]) -> list[str]:
        """Returns a line for each difference between an earlier declaration and this one; [] if they agree.

        A config field that was added since, and has its default, is no difference; neither is a part that
        declarations did not have then, nor a model or claim that may be added.
        """
        now = self.declaration()
        before = {**declared, "models": [dict(model) for model in declared["models"]]}
        lines, by_name = [], {model["name"]: model for model in now["models"]}
        for was in before["models"]:
            config = was.pop("config")
            if (name := was["name"]) in by_name:
                by_name[name].pop("config")
                model = next(model for model in self.models if model.name == name)
                lines += changes(config, model.config, f"{name}: config.")
        if self._may_grow(before):
            for part, key in (("models", "name"), ("claims", "id")):
                known = {of[key] for of in before[part]}
                now[part] = [of for of in now[part] if of[key] in known]
        return lines + _different(before, {name: now[name] for name in now if name in before})

    def grows(self, declared: Mapping[str, Any]) -> bool:
        """Returns whether this has models or claims that an earlier declaration does not have."""
        models, claims = ({of["name"] for of in declared["models"]}, {of["id"] for of in declared["claims"]})
        return (
            not {model.name for model in self.models} <= models
            or not {claim.id for claim in self.claims} <= claims
        )

    def _may_grow(self, declared: Mapping[str, Any]) -> bool:
        return self.family > 0 and all(claim.get("against") for claim in declared["claims"])


def _code(function: Callable[..., Any]) -> str | None:
    """Returns a SHA-256 of a function's code without docstrings, comments and layout; None without source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # not from a file, or a lambda in the middle of an expression
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.name = ""  # declared apart
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:]
    whole: Any = {"show_empty": True} if sys.version_info >= (3, 13) else {}  # what 3.12 writes anyway
    return hashlib.sha256(ast.dump(tree, **whole).encode()).hexdigest()


def _different(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    return [
        f"{prefix}{name}: {json.dumps(before.get(name))} there, {json.dumps(now.get(name))} now"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]


def settled(config: RunConfig) -> dict[str, Any]:
    """Returns a config as JSON holds it, without what cannot change a result and what the runner sets."""
    free = {field.name for field in dataclasses.fields(config) if field.metadata.get("resumable")}
    return {
        name: value for name, value in config_dict(config).items() if name not in free | {"seed", "steps"}
    }


def changes(before: Mapping[str, Any], config: RunConfig, prefix: str = "") -> list[str]:
    """Returns a line for each field in which a config differs from what `settled` returned earlier.

    A field that was added since, and has its default, is no difference.
    """
    try:
        filled = from_dict(type(config), {name: before[name] for name in before if name != EXPERIMENT})
    except ValueError as error:
        return [f"{prefix[:-1]}: {error}"]
    return _different(flatten(settled(filled)), flatten(settled(config)), prefix)


def _replaced(config: Any, path: Sequence[str], value: Any, where: str) -> Any:
    name, *rest = path
    if not dataclasses.is_dataclass(config) or name not in {f.name for f in dataclasses.fields(config)}:
        raise ValueError(f"{where}: got {name!r}, expected a field of {type(config).__name__}")
    if rest:
        value = _replaced(getattr(config, name), rest, value, where)
    return dataclasses.replace(config, **{name: value})


def equal_time(steps: int, step_seconds: float, other_step_seconds: float, multiple_of: int = 1) -> int:
    """Returns how many steps of another model take as long as `steps` of ours, by quiet step times.

    The result is a multiple of `multiple_of`, such as the config's `log_every`.
    """
    return max(round(steps * step_seconds / other_step_seconds / multiple_of), 1) * multiple_of
