"""The released TP-Transformer at work on questions that are drawn now, for `experiments.showcase`."""

from pathlib import Path

from experiments import runtime
from experiments.mathematics import figures
from experiments.mathematics.load import load
from experiments.mathematics.tour import answered, mix
from tp_transformer import TPTransformer, mathematics

QUESTIONS = 100
"""Questions per module."""
SHOWN = 4


def showcase(directory: Path, seed: int) -> runtime.Stop:
    """Answers new questions, draws their roles, and returns the section of the page."""
    trained = load("mathematics/quick")
    config, model = trained.config, trained.model
    assert config is not None  # a released folder has one
    assert isinstance(model, TPTransformer)
    modules = config.data.modules
    source = mathematics.Generator(0, QUESTIONS, modules, (), seed)
    rows, shares = [], []
    for module in modules:
        asked = answered(trained, source, module, QUESTIONS)
        right = sum(row["answer"] == row["model's answer"] for row in asked)
        low, high = runtime.intervals.wilson_interval(right, QUESTIONS)
        title = figures.title_of(module)
        shares.append(f"{right} of {QUESTIONS} on {title} (95% interval {low:.0%} to {high:.0%})")
        rows += [{"module": title, **row} for row in mix(asked)[:SHOWN]]
    drawn = figures.of_roles(config, model, trained.params, source, modules[:1])
    pictures = {}
    if drawn is not None:
        path = runtime.plots.save(drawn, directory / "roles.png")
        pictures[path] = "The new questions: characters with the same colour have similar role vectors."
    return runtime.Stop(
        title="TP-Transformer: mathematics, character by character",
        meaning=(
            "The model reads a question character by character and writes the answer the same way. Its "
            "attention binds each value that it retrieves to a role vector. It answers exactly "
            f"{' and '.join(shares)}."
        ),
        rows=rows,
        figures=pictures,
        caveat=(
            "A model 240 times smaller than the paper's, trained for two minutes on two of the 56 modules. "
            "The table alternates right and wrong answers."
        ),
        commands={
            "Ask a question": (
                "python -m experiments.mathematics.solve --run=mathematics/quick "
                '--question="What is the tens digit of 31415?"'
            ),
            "Train a model (3 minutes)": (
                "python -m experiments.mathematics --config=quick --workdir=runs/mathematics"
            ),
        },
    )
