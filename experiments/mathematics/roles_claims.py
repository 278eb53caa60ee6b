"""The claim about syntactic roles: what role vectors tell of them, against states, trained and untrained.

Both models are trained on small expressions (`expressions`). `probing` says what is read. The picture of
figure 2 is `roles.png` in the directory of each TP-Transformer's run.
"""

import dataclasses
from typing import Any

import jax

from experiments.mathematics import probing
from experiments.mathematics.binding_claims import SIZES, base
from experiments.mathematics.config import Architecture, Config, DataConfig
from experiments.mathematics.expressions import Expressions
from experiments.mathematics.train import problem
from experiments.runtime.claims import Claim, Comparison, Model, Run
from experiments.runtime.training import Task, initial_state, run_keys
from tp_transformer import mathematics

STEPS = 6000
QUESTIONS, SEED = 200, 1
"""Questions per form that vectors are read from, half of them for fitting, and their seed."""


def measure(run: Run) -> dict[str, Any]:
    """Measures the roles read from the trained model and from its initialization, and exact match."""
    model = run.config.model.make()
    source = Expressions(0, QUESTIONS, SEED)
    questions = [
        pair.question
        for module in source.modules(mathematics.INTERPOLATE)
        for pair in source.questions(mathematics.INTERPOLATE, module)
    ]
    trained = probing.read(model, run.result.params, questions)
    before = probing.read(model, untrained(run.config), questions)
    found = {**trained, **{f"untrained/{name}": value for name, value in before.items()}}
    for how in ("probe", "clusters"):
        found[f"gain/{how}"] = trained[how] - before[how]
    return {**found, "exact_match": run.result.results[mathematics.INTERPOLATE]["average"]}


def untrained(config: Config) -> Any:
    """Returns the parameters that a run of this config begins with."""
    task = Task(seed=config.seed, batch_size=config.batch_size, **problem(config, config.model.make()))
    return jax.jit(lambda key: initial_state(task, key).params)(run_keys(config.seed)[0])


def config_of(name: Architecture, filter_features: int) -> Config:
    """Returns `base` on small expressions."""
    data = DataConfig(questions="expressions", train=20_000, test=300, seed=2, buckets=("32x6",))
    return dataclasses.replace(base(name, filter_features), data=data, batch_size=64, steps=STEPS)


def _claim(part: str, claim: str, how: str, value: str, tests: Any) -> Claim:
    return Claim(id=f"mathematics.roles.{part}", claim=claim, measure=how, value=value, tests=tests)


_OF_FOUR = "the mean over place in a number, bracket depth, operand, and whether it is subtracted"
ROLES = Comparison(
    name="mathematics.roles",
    claims=(
        _claim(
            "probe",
            "a linear probe reads more of a digit's syntactic role from the role vectors of the last encoder "
            "layer of a TP-Transformer than from the states of that of a Transformer",
            f"balanced accuracy on other questions, {_OF_FOUR}",
            "probe",
            ("paired",),
        ),
        _claim(
            "clusters",
            "20 clusters of role vectors tell more of a digit's syntactic role than 20 clusters of states",
            f"share of the role's entropy known from the cluster on other questions, {_OF_FOUR}",
            "clusters",
            ("paired",),
        ),
        *(
            _claim(
                f"gain_of_{how}",
                f"what training adds to that over the untrained model, by {how}",
                "the difference to the initialization",
                f"gain/{how}",
                (),
            )
            for how in ("probe", "clusters")
        ),
    ),
    models=tuple(
        Model(shown, config_of(name, width), parameters, STEPS)
        for shown, name, width, parameters in SIZES
        if name != "gated_transformer"
    ),
    measure=measure,
    seeds=(3, 4, 5),
    search_seeds=(100,),
)

CLAIMS = (ROLES,)
