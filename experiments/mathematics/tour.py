"""What the tour shows of the Mathematics Dataset."""

from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.mathematics import figures, measures
from experiments.mathematics.config import Config
from experiments.mathematics.train import main, open_questions
from tp_transformer import mathematics


def tour_stop(directory: Path, config: Config) -> runtime.Stop:
    """Runs the experiment in a directory, and says what is to be seen there."""
    (result,) = main(config, workdir=directory).values()
    found = result.results[mathematics.INTERPOLATE]["modules"]
    always = result.results["commonest_answer"][mathematics.INTERPOLATE]["modules"]
    rows = []
    for worked in worked_questions(config, directory, result.params):
        share = found[worked.module]
        rows.append(
            {
                "question": worked.question,
                "answer": worked.answer,
                "the model's": worked.given,
                "": "right" if worked.right else "wrong",
                "module": f"{figures.title_of(worked.module)}: {share['right'] / share['total']:.0%} right",
            }
        )
    average = result.results[mathematics.INTERPOLATE]["average"]
    least = min(
        found[module]["interval"][0] - always[module]["right"] / always[module]["total"] for module in found
    )
    pictures = {
        "learning": "Held-out questions answered exactly, every character and the end, during training.",
        "accuracy_interpolate": "At the end, against always giving the commonest answer of the module.",
        "roles": "Every character has the colour and number of the cluster that its role vector belongs to.",
    }
    return runtime.Stop(
        title="TP-Transformer: mathematics, character by character",
        meaning=(
            "The model reads a question as characters and writes the answer as characters. Its attention "
            "binds what it finds to a role vector that it computes for each position (one picture shows "
            f"which positions get alike roles). After {result.train_seconds:.0f} s of training it answers "
            f"{average:.0%} of new questions exactly; the 95 % interval of each module is at least "
            f"{100 * least:.0f} points above always giving the module's commonest answer."
        ),
        rows=rows,
        figures={
            directory / f"{name}.png": caption
            for name, caption in pictures.items()
            if (directory / f"{name}.png").exists()
        },
        caveat=(
            "Two of the 56 modules, a model 240 times smaller than the paper's, one seed; no comparison with "
            "a Transformer is claimed from a run of this size. The table's questions were chosen to show "
            "right and wrong answers."
        ),
    )


def worked_questions(config: Config, workdir: Path, params: Any, count: int = 5) -> list[measures.Worked]:
    """A few questions of the test set, right and wrong ones where there are both, from all modules."""
    source = open_questions(config, workdir)
    modules = config.data.test_modules(source)[mathematics.INTERPOLATE]
    model = config.model.make()
    tried = [
        measures.work(model, params, source, module, 40, split=mathematics.INTERPOLATE) for module in modules
    ]
    # One of each module in turn, right and wrong ones in turn as far as there are any.
    mixed = [worked for turn in zip(*map(measures.mix, tried), strict=False) for worked in turn]
    return mixed[:count]
