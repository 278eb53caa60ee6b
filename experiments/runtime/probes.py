"""What can be read from vectors by a linear classifier."""

import numpy as np
from jaxtyping import Float, Int

PENALTY = 1e-2
"""Ridge penalty per vector, in units of a feature's variance."""


def linear_probe(
    train: tuple[Float[np.ndarray, "M F"], Int[np.ndarray, "M"]],
    test: tuple[Float[np.ndarray, "K F"], Int[np.ndarray, "K"]],
) -> float:
    """Returns the accuracy on `test` of a linear classifier fitted to `train`, averaged over classes.

    It is ridge regression to the classes' indicators, weighted so that all classes of `train` count alike.
    Classes that `test` lacks are left out of the average.
    """
    (x, y), (new, labels) = train, test
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-8
    x, new = ((of - mean) / scale for of in (x, new))
    classes, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    weights = (len(y) / len(classes) / counts)[index]
    x, new = (np.concatenate([of, np.ones((len(of), 1))], axis=1) for of in (x, new))
    penalty = PENALTY * len(y) * np.eye(x.shape[1])
    penalty[-1, -1] = 0
    targets = np.eye(len(classes))[index]
    solution = np.linalg.solve((x * weights[:, None]).T @ x + penalty, (x * weights[:, None]).T @ targets)
    said = classes[np.argmax(new @ solution, axis=1)]
    return float(np.mean([np.mean(said[labels == name] == name) for name in np.unique(labels)]))
