"""Pools of processes and locks of folders."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logic_zoo import workers

BEGUN: list[int] = []


def begin(value):
    BEGUN.append(value)


def begun():
    return BEGUN


def end():
    os.kill(os.getpid(), signal.SIGKILL)


def fail_beside_long_work():
    with workers.pool(1) as pool:
        pool.submit(time.sleep, 60)
        pool.submit(time.sleep, 60)
        raise ZeroDivisionError


def test_processes_begin_with_what_they_are_given():
    with workers.pool(2, begin, 7) as pool:
        assert [pool.submit(begun).result() for _ in range(4)] == [[7]] * 4
    assert not BEGUN


def test_a_killed_process_is_an_error():
    killed = pytest.raises(RuntimeError, match=r"a worker process was killed \(out of memory\?\)")
    with killed, workers.pool(2) as pool:
        pool.submit(end).result()


def test_nothing_is_waited_for_after_an_error():
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        fail_beside_long_work()
    assert time.monotonic() - began < 30


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for the workers in /proc")
def test_processes_end_with_the_one_that_started_them(tmp_path):
    """Even if it is killed."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time\n"
        "from logic_zoo import workers\n"
        "if __name__ == '__main__':\n"
        "    with workers.pool(2) as pool:\n"
        "        print(*{pool.submit(os.getpid).result() for _ in range(2)}, flush=True)\n"
        "        time.sleep(60)\n"
    )
    running = subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    pids = running.stdout.readline().split()
    running.kill()
    running.communicate()
    assert pids
    for _ in range(200):
        alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if all("Z" in Path(f"/proc/{pid}/stat").read_text().split() for pid in alive):
            break
        time.sleep(0.05)
    else:
        raise AssertionError(f"processes {pids} are still running")


def test_a_folder_is_locked_for_one(tmp_path):
    """The lock ends with the block."""
    refused = pytest.raises(RuntimeError, match=f"{tmp_path}: another process is writing to this folder")
    with workers.locked(tmp_path), refused, workers.locked(tmp_path):
        raise AssertionError("locked twice")
    with workers.locked(tmp_path):
        pass


def test_cores():
    assert 1 <= workers.cores() <= (os.cpu_count() or 1)
