"""Which tests a file has."""

import pytest

from benchmarks.mutants import areas

TESTS = {
    "tests/conftest.py": "",
    "tests/test_docs.py": "import experiments.runtime.fit",
    "tests/test_types.py": "from kernels.trans import xla",
    "tests/kernels/cases.py": "",
    "tests/kernels/test_dispatch.py": "from kernels import dispatch",
    "tests/kernels/trans/test_gpu.py": "",
    "tests/kernels/trans/test_xla.py": "",
    "tests/kernels/trilinear/test_gpu.py": "import kernels.trans.gpu_forward",
    "tests/llrnn/test_cells.py": "",
    "tests/llrnn/logic/test_terms.py": "",
    "tests/experiments/conftest.py": "",
    "tests/experiments/test_tour.py": "",
    "tests/experiments/runtime/small.py": "",
    "tests/experiments/runtime/test_fit.py": "",
    "tests/experiments/kinship/test_train.py": "from experiments.runtime import fit",
}


@pytest.mark.parametrize(
    ("path", "own", "others"),
    [
        (
            "kernels/trans/gpu_forward.py",
            ["kernels/trans/test_gpu", "kernels/trilinear/test_gpu"],
            ["kernels/trans/test_xla", "kernels/test_dispatch"],
        ),
        (
            "kernels/trans/xla.py",
            ["kernels/trans/test_xla", "test_types"],
            ["kernels/trans/test_gpu", "kernels/test_dispatch", "kernels/trilinear/test_gpu"],
        ),
        ("llrnn/cells/general.py", ["llrnn/test_cells"], ["llrnn/logic/test_terms"]),
        ("llrnn/logic/terms.py", ["llrnn/logic/test_terms"], ["llrnn/test_cells"]),
        (
            "experiments/runtime/fit.py",
            ["experiments/runtime/test_fit", "kinship/test_train", "test_docs"],
            ["experiments/test_tour"],
        ),
        ("experiments/kinship/train.py", ["kinship/test_train"], ["experiments/test_tour"]),
        ("experiments/tour.py", ["experiments/test_tour"], []),
    ],
)
def test_own_tests_come_first_and_then_the_rest_of_the_area(path, own, others):
    def full(name):
        folder = "experiments/" if name.startswith(("kinship", "runtime")) else ""
        return f"tests/{folder}{name}.py"

    assert areas.tests_of(path, TESTS) == ([full(name) for name in own], [full(name) for name in others])


def test_groups_have_tests_and_helpers():
    assert areas.files_of_group("experiments/runtime", TESTS) == (
        ["tests/experiments/runtime/test_fit.py"],
        ["tests/conftest.py", "tests/experiments/conftest.py", "tests/experiments/runtime/small.py"],
    )
    assert areas.files_of_group("", TESTS) == (
        ["tests/test_docs.py", "tests/test_types.py"], ["tests/conftest.py"],
    )  # fmt: skip
    assert len(areas.files_of_group("kernels", TESTS)[0]) == 4
