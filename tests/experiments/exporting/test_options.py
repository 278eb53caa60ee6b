import pytest

from experiments.exporting.options import Options


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"platforms": ()}, "platforms= must be of cpu,cuda,tpu"),
        ({"platforms": ("cpu", "rocm")}, "platforms=cpu,rocm must be of"),
        ({"weights": "away"}, "weights=away must be one of inside, beside, constants"),
        ({"kernels": ("h100",)}, "kernels=h100 must be portable, or of h200,v5e"),
        ({"kernels": ()}, "kernels= must be portable"),
        ({"kernels": ("portable", "h200")}, "kernels=portable,h200 must be portable, or of"),
        ({"kernels": ("h200",)}, "platforms=cpu,cuda,tpu must be those of kernels=h200; cpu is on one side"),
        ({"sharding": {"rows": 2}}, "must be of the axes data and model"),
        ({"sharding": {"data": 0}}, "must be numbers of at least 1"),
        ({"lengths": (0,)}, "must be numbers of at least 1"),
        ({"batch": 0}, "must be numbers of at least 1"),
        ({"batch": 6, "sharding": {"data": 4}}, "batch=6 must be a multiple of the 4 devices along data"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(fields, message):
    with pytest.raises(ValueError, match=message):
        Options(**fields)


def test_chips_are_those_of_the_kernels():
    options = Options(kernels=("h200", "v6e"), platforms=("cuda", "tpu"))
    assert [chip.kind for chip in options.chips] == ["NVIDIA H200", "TPU v6 lite"]
    assert Options().chips == ()


def test_a_mesh_needs_no_devices():
    mesh = Options(sharding={"data": 64, "model": 4}).mesh
    assert mesh is not None
    assert dict(mesh.shape) == {"data": 64, "model": 4}
    assert Options().mesh is None
