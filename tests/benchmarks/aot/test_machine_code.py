"""Reading what the compiler says of a kernel."""

import pytest

from benchmarks.aot import machine_code

# Two nested loops, as a disassembly has them; the inner one is the hot one.
CODE = """
.text.kernel:
   -:-:0:Y:01        /*0000*/                   LDC R1, c[0x0][0x28]
.L_x_2:
   -:-:-:Y:05        /*0010*/                   MUFU.EX2 R9, R9
.L_x_1:
   -:-:-:Y:05        /*0020*/                   FFMA R2, R3, R4, R5
   -:-:-:Y:05        /*0030*/                   MUFU.RSQ R2, R2
   -:-:-:Y:05        /*0040*/             @!P1  MUFU.EX2 R2, R2
   -:-:-:Y:05        /*0050*/                   MUFU.EX2 R6, R6
   -:-:-:Y:05        /*0060*/                   HGMMA.64x48x16.F32.BF16 R24, R4, gdesc[UR4]
   -:-:-:Y:05        /*0070*/               @P0 BRA `(.L_x_1)
   -:-:-:Y:05        /*0080*/                   IADD3 R1, R1, -0x18, RZ
   -:-:-:Y:05        /*0090*/              @!P0 BRA `(.L_x_2)
   -:-:-:Y:05        /*00a0*/                   EXIT
.L_x_3:
   -:-:-:Y:05        /*00b0*/                   BRA `(.L_x_3)
"""
REPORT = """ptxas info    : Compiling entry function 'k_mosaic_gpu_kernel' for 'sm_90a'
    24 bytes stack frame, 24 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 146 registers, used 2 barriers, 24 bytes cumulative stack size
"""


def test_the_innermost_busy_loop_is_counted():
    count, loops = machine_code.loops(CODE)
    assert count == 12
    assert loops == [machine_code.Loop(instructions=6, exponentials=2, square_roots=1, matrix=1)]


def test_a_kernel_without_a_loop_of_exponentials():
    assert machine_code.loops("/*0000*/ EXIT ;\n.L_x_0:\n/*0010*/ BRA `(.L_x_0);") == (2, [])


def test_a_folder_of_dumps(tmp_path):
    (tmp_path / "k_0.ptxas").write_text(REPORT)
    (tmp_path / "k_0.sass_ctrl").write_text(CODE)
    (kernel,) = machine_code.read(tmp_path)
    assert (kernel.name, kernel.registers, kernel.spilled_bytes, kernel.instructions) == ("k_0", 146, 40, 12)
    assert kernel.loop is not None
    assert kernel.loop.exponentials == 2


def test_a_dump_without_disassembly_is_an_error(tmp_path):
    (tmp_path / "k_0.ptxas").write_text(REPORT)
    with pytest.raises(ValueError, match=r"k_0\.ptxas"):
        machine_code.read(tmp_path)
