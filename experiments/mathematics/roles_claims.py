"""The claim about syntactic roles: what role vectors tell of them, against states, trained and untrained.

Both models are trained on small expressions (`expressions`). `probing` says what is read, and what a probe
reads without a model, from symbols and positions; the vectors are read at the run's test questions, which do
not occur in training. At these, a digit's symbol, position and neighbours give its place, bracket depth and
operand almost without error (1.0, .97 and .99), but neither the operator (.49 of two) nor whether it is
subtracted (.76). These two, which are reported apart, need more of the expression: three symbols on each side
of the digit give .96 and .92. So what is read here is what a layer has gathered from nearby, which a linear
probe could as well read from there, and not how deep its syntax goes. Role vectors are a linear map of the
states that the last layer's attention reads, and are compared with these states of a Transformer: a probe
says what the layers below have gathered, clusters also how the map arranges it. What both read from the
states of the TP-Transformer is reported, too.

The picture of figure 2 is `roles.png` in the directory of each TP-Transformer's run, of questions of all
forms. For `results/mathematics`, it is that of the first reported seed:

    python -m experiments.claims --only=mathematics.roles --workdir=DIR
    cp DIR/mathematics.roles/reported-6-*/roles.png results/mathematics/roles.png

Only a TP-Transformer's run has the file, so that the second command finds one.
"""

import dataclasses
from typing import Any

import jax

from experiments.mathematics import probing
from experiments.mathematics.binding_claims import SIZES, base
from experiments.mathematics.config import Architecture, Config, DataConfig
from experiments.mathematics.train import problem
from experiments.runtime.claims import Claim, Comparison, Model, Run
from experiments.runtime.training import Task, initial_state, run_keys
from tp_transformer import mathematics

STEPS = 6000


def questions_of(config: Config) -> list[str]:
    """Returns the run's test questions of all forms, which it was not trained on."""
    source = config.data.open()
    modules = source.modules(mathematics.INTERPOLATE)
    return [pair.question for name in modules for pair in source.questions(mathematics.INTERPOLATE, name)]


def measure(run: Run) -> dict[str, Any]:
    """Measures the roles read from the trained model, its initialization and no model, and exact match.

    "states/" is before what is read from the states that role vectors are computed from.
    """
    model, questions = run.config.model.make(), questions_of(run.config)
    trained = probing.read(model, run.result.params, questions)
    before = probing.read(model, untrained(run.config), questions)
    states = probing.read(model, run.result.params, questions, states=True)
    found = {**trained, **{f"untrained/{name}": value for name, value in before.items()}}
    for how in ("probe", "clusters"):
        found[f"gain/{how}"] = trained[how] - before[how]
        found[f"states/{how}"] = states[how]
    exact = run.result.results[mathematics.INTERPOLATE]["average"]
    return {**found, **probing.controls(questions), "exact_match": exact}


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


_MEAN = "the mean over place in a number, bracket depth, operand, operator, and whether it is subtracted"
ROLES = Comparison(
    name="mathematics.roles",
    claims=(
        _claim(
            "probe",
            "a linear probe reads more of a digit's syntactic role from the role vectors of the last encoder "
            "layer of a TP-Transformer than from the states that this layer of a Transformer reads",
            f"balanced accuracy on other questions, {_MEAN}",
            "probe",
            ("paired",),
        ),
        _claim(
            "clusters",
            "20 clusters of role vectors tell more of a digit's syntactic role than 20 clusters of states",
            f"share of the role's entropy known from the cluster on other questions, {_MEAN}",
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
        *(
            _claim(
                f"{how}_of_states",
                f"the same of the states that the last layer of either model reads, by {how}",
                f"as of mathematics.roles.{how}",
                f"states/{how}",
                (),
            )
            for how in ("probe", "clusters")
        ),
        *(
            _claim(
                f"probe_of_{role}",
                f"what a linear probe reads of {shown}, a part of that mean",
                "balanced accuracy on other questions",
                f"probe/{role}",
                (),
            )
            for role, shown in (
                ("operator", "the operator around a digit's number"),
                ("inverse", "whether a digit's number is subtracted"),
            )
        ),
        *(
            _claim(
                f"from_{control}",
                f"what a linear probe reads without a model, from {shown} alone",
                f"balanced accuracy on other questions, {_MEAN}",
                f"{control}/probe",
                (),
            )
            for control, shown in (
                ("symbol_position", "a digit's symbol and absolute position"),
                ("neighbours", "the same and the symbols before and after it"),
                ("window", "the same and three symbols on each side"),
            )
        ),
    ),
    models=tuple(
        Model(shown, config_of(name, width), parameters, STEPS)
        for shown, name, width, parameters in SIZES
        if name != "gated_transformer"
    ),
    measure=measure,
    seeds=(6, 7, 8),
    search_seeds=(100,),
)

CLAIMS = (ROLES,)
