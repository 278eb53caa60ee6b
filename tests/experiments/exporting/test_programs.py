import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.exporting import Options, Output, programs
from tests.experiments.exporting import small as small_exports
from tests.experiments.exporting.small import SUMS


def test_a_program_for_each_length_with_a_free_batch():
    made = programs.export_programs(dataclasses.replace(SUMS, longest=6), Options(lengths=(6, 2, 6)))
    assert list(made) == [2, 6]
    for length, exported in made.items():
        assert exported.platforms == ("cpu", "cuda", "tpu")
        shapes = [str(aval.shape).replace(" ", "") for aval in exported.out_avals]
        assert shapes == [f"(batch,{length})", "(batch,)"]


def test_one_input_with_a_length_is_enough():
    ids, mask = SUMS.inputs.values()
    model = dataclasses.replace(
        SUMS, inputs={"ids": ids, "mask": dataclasses.replace(mask, shape=("batch", 1))}
    )
    assert list(programs.export_programs(model, Options(lengths=(3,)))) == [3]


def test_a_length_may_be_free_within_bounds():
    def compares(params, inputs):
        if inputs["ids"].shape[1] > 16:
            raise ValueError("there are 16 positions")
        return small_exports.weigh(params, inputs)

    bounded = dataclasses.replace(SUMS, function=compares, longest=16)
    assert list(programs.export_programs(bounded, Options(lengths=None))) == [None]
    unbounded = dataclasses.replace(SUMS, function=compares)
    with pytest.raises(ValueError, match=r"batch, length: got any size, expected a number, .*: Symb"):
        programs.export_programs(unbounded, Options(lengths=None))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (dataclasses.replace(SUMS, derivable=None), Options(derivative=True), "got True, expected False"),
        (
            dataclasses.replace(SUMS, with_kernels=lambda _: small_exports.weigh),
            Options(derivative=True, kernels=("h200",), platforms=("cuda",)),
            "kernels: got h200, expected portable for a derivative",
        ),
        (SUMS, Options(kernels=("h200",), platforms=("cuda",)), "got h200, expected portable for this sum"),
        (dataclasses.replace(SUMS, longest=7), Options(), "length: got 8, expected at most 7"),
        (dataclasses.replace(SUMS, shortest=5), Options(), "length: got 4, expected at least 5"),
        (
            dataclasses.replace(SUMS, outputs={**SUMS.outputs, "total": Output(("batch", 1), "of all")}),
            Options(),
            r"output total: got shape \(batch,\), expected \[batch, 1\]",
        ),
        (
            dataclasses.replace(SUMS, inputs={name: dataclasses.replace(one, shape=("batch", 3))
                                              for name, one in SUMS.inputs.items()}),
            Options(lengths=(3,)),
            "length: got 3, expected none, since this sum has no length",
        ),
    ],
)  # fmt: skip
def test_what_a_model_cannot_be_exported_as_is_reported(model, options, message):
    with pytest.raises(ValueError, match=message):
        programs.export_programs(model, options)


def test_a_kernel_that_does_not_fit_is_reported_by_its_reason():
    def refuses(names):
        assert names == ("gpu", "tpu")

        def function(*_):
            raise NotImplementedError("gpu: float32")

        return function

    model = dataclasses.replace(SUMS, with_kernels=refuses)
    with pytest.raises(ValueError, match=r"kernels: got h200,v5e, .*: gpu: float32"):
        programs.export_programs(model, Options(kernels=("h200", "v5e"), platforms=("cuda", "tpu")))


def test_errors_of_the_model_itself_are_its_own():
    def broken(*_):
        raise KeyError("ids")

    with pytest.raises(KeyError):
        programs.export_programs(dataclasses.replace(SUMS, function=broken), Options(batch=2))


def test_weights_are_named_by_their_place_and_split_along_model():
    model = dataclasses.replace(SUMS, params={"b": {"kernel": jnp.ones((6, 8))}, "a": jnp.ones(8)})
    weights = programs.named_weights(model)
    assert {name: array.shape for name, array in weights.items()} == {"a": (8,), "b/kernel": (6, 8)}
    options = Options(sharding={"data": 2, "model": 4})
    assert programs.splits_of(weights, options) == {"b/kernel": [None, "model"]}
    others = {"square": np.ones((8, 8)), "odd": np.ones((6, 6))}
    assert programs.splits_of(others, options) == {"square": ["model", None]}
    assert programs.splits_of(weights, Options(sharding={"data": 2})) == {}
    assert programs.split_of_input(options) == ["data"]
    assert programs.sizes(("batch", "length", 3), options, 5) == ["2*batch", 5, 3]
    assert programs.sizes(("batch", "length"), Options(batch=4)) == [4, "length"]


def test_weights_keep_their_places_whatever_their_names():
    """A flat dict has a different order than the tree, because "-" sorts before "/"."""
    params = {"a": {"x": jnp.full((1, 1), 2.0)}, "a-b": jnp.full((1,), 10.0)}

    def function(params, inputs):
        return small_exports.weigh({"scale": params["a"]["x"], "offset": params["a-b"]}, inputs)

    model = dataclasses.replace(SUMS, function=function, params=params, lengths=(3,))
    (exported,) = programs.export_programs(model, Options()).values()
    ids = np.array([[1, 2, 3]], np.int32)
    found = exported.call(programs.named_weights(model), {"ids": ids, "mask": ids > 0})
    assert found["total"] == 22
