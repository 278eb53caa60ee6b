"""Sources of questions that are drawn in this process, for what the dataset's own questions cannot ask."""

import abc
import dataclasses
import functools
import itertools
import random
from collections.abc import Sequence

from tp_transformer import mathematics
from tp_transformer.mathematics.sources import Listed


@dataclasses.dataclass(frozen=True)
class Drawn(abc.ABC):
    """A source of questions that are drawn on first use.

    Modules that are trained are also those of `interpolate`, whose questions do not occur in training;
    modules that are held out are those of `extrapolate`.

    Attributes:
        train: number of training questions per module.
        test: number of test questions per module.
        seed: seed of the questions.
    """

    train: int
    test: int
    seed: int = 0

    @abc.abstractmethod
    def modules(self, split: mathematics.Split) -> tuple[str, ...]:
        """Returns the names of a split's modules."""

    @abc.abstractmethod
    def draw(self, module: str, rng: random.Random) -> mathematics.Question:
        """Draws a question of a module and its answer."""

    def questions(self, split: mathematics.Split, module: str) -> mathematics.Questions:
        """Returns the questions of a module; raises ValueError if the split does not have it."""
        if module not in self.modules(split):
            raise ValueError(f"module: got {module!r}, expected one of {', '.join(self.modules(split))}")
        training, test = _questions(self, module)
        return Listed(training if split == mathematics.TRAIN else test)


@functools.cache
def _questions(
    source: Drawn, module: str
) -> tuple[Sequence[mathematics.Question], Sequence[mathematics.Question]]:
    """Draws training questions and other test questions of a module."""
    rng = random.Random(f"{source.seed}/{module}")
    test = [source.draw(module, rng) for _ in range(source.test)]
    known = {question for question, _ in test}
    drawn = (source.draw(module, rng) for _ in itertools.count())
    new = (question for question in drawn if question.question not in known)
    return list(itertools.islice(new, source.train)), test
