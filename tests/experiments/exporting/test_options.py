import pytest

from experiments.exporting.options import CHIPS, Options


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"platforms": ()}, "platforms: got none, expected some of cpu,cuda,tpu"),
        ({"platforms": ("cpu", "rocm")}, "platforms: got cpu,rocm, expected some of"),
        ({"weights": "away"}, "weights: got 'away', expected one of 'inside', 'beside', 'constants'"),
        ({"kernels": ("h100",)}, "kernels: got h100, expected portable, or some of h200,v5e"),
        ({"kernels": ()}, "kernels: got none, expected portable"),
        ({"kernels": ("portable", "h200")}, "kernels: got portable,h200, expected portable, or some of"),
        ({"kernels": ("h200",)}, "platforms: got cpu,cuda,tpu, expected cuda for kernels=h200"),
        (
            {"kernels": ("v5e", "h200"), "platforms": ("cpu",)},
            "platforms: got cpu, expected cuda,tpu for kernels=v5e,h200",
        ),
        ({"sharding": {"rows": 2}}, "sharding: got axes rows, expected some of data, model"),
        ({"sharding": {"data": 0}}, "expected sizes of at least 1"),
        ({"lengths": (0,)}, "expected sizes of at least 1"),
        ({"batch": 0}, "expected sizes of at least 1"),
        (
            {"batch": 6, "sharding": {"data": 4}},
            "batch: got 6, expected a multiple of 4, the devices",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=message):
        Options(**fields)


def test_chips_are_those_of_the_kernels():
    options = Options(kernels=("h200", "v6e"), platforms=("cuda", "tpu"))
    assert [chip.kind for chip in options.chips] == ["NVIDIA H200", "TPU v6 lite"]
    assert Options().chips == ()
    assert len(Options(kernels=tuple(CHIPS), platforms=("tpu", "cuda")).chips) == len(CHIPS)  # in any order


def test_a_mesh_needs_no_devices():
    mesh = Options(sharding={"data": 64, "model": 4}).mesh
    assert mesh is not None
    assert dict(mesh.shape) == {"data": 64, "model": 4}
    assert Options().mesh is None
