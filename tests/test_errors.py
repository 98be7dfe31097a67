"""What is told of an error: the line that says what is wrong."""

from __future__ import annotations

import re

import pytest

from layoutlab.errors import first_message

SCHEDULE_ERROR = """\
ScheduleError: An error occurred in the schedule primitive 'split'.

The IR with diagnostic is:
# from tvm.script import ir as I
@I.ir_module
class Module:
            for i in range(1024):
            ^^^^^^^^^^^^^^^^^^^^^
Error message: The product of factors is not larger than or equal to the extent of loop tirx.For#0"""

LINKER = """\
Compilation error:
/usr/bin/ld: /tmp/tmp1/lib0.o: Relocations in generic ELF (EM: 183)
/usr/bin/ld: /tmp/tmp1/lib0.o: error adding symbols: file in wrong format
collect2: error: ld returned 1 exit status

Command line: /usr/bin/g++ -shared -fPIC -o x.so /tmp/tmp1/lib0.o"""

REMOTE = """\
Error caught from RPC call:
Traceback (most recent call last):
  File "<unknown>", line 0, in tvm::runtime::RPCEndpoint::HandleReturn()
  File "agent.py", line 12, in do
    raise ValueError("no such verb")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: no such verb"""

LOGGED = """\

[12:34:56] /project/src/target/llvm/llvm_instance.cc:218: Error: `-mcpu=x` is not valid
[12:34:57] /project/src/target/llvm/llvm_instance.cc:300: Aborted"""


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError(SCHEDULE_ERROR),
            "The product of factors is not larger than or equal to the extent of loop tirx.For#0",
        ),
        (RuntimeError(LINKER), "/usr/bin/ld: /tmp/tmp1/lib0.o: Relocations in generic ELF (EM: 183)"),
        (ValueError(REMOTE), "no such verb"),
        (LOGGED, "Error: `-mcpu=x` is not valid"),
        (
            ValueError(
                "Invalid a.shape[0] on argument #0 when calling:\n  `main(a: Tensor([1024]))`,\n  expected 1024"
            ),
            "Invalid a.shape[0] on argument #0 when calling:",
        ),
        ("model.c:3:7: error: unknown type", "error: unknown type"),
        ("Stack trace:\n  0: tvm::f()\n  [bt] (1) libtvm.so\nout of memory", "out of memory"),
        (ValueError(), "no message"),
        (ValueError("\n \n"), "no message"),
        ("Traceback (most recent call last):\n  File x", "no message"),
        ("x" * 301, "x" * 300),
    ],
)
def test_the_line_that_says_what_is_wrong(error, message):
    assert first_message(error) == message


def test_the_errors_that_tvm_really_raises(tmp_path):
    """The texts above are copies; a new TVM may write others."""
    from tvm import te

    from layoutlab.engine.relax.tvm_cpu import tvm

    a = te.placeholder((1024,), name="a")
    function = te.create_prim_func([a, te.compute((1024,), lambda i: a[i] + 1.0, name="b")])
    schedule = tvm.s_tir.Schedule(function.with_attr("global_symbol", "main"))
    (loop,) = schedule.get_loops(schedule.get_sblock("b"))
    with pytest.raises(tvm.s_tir.ScheduleError) as caught:
        schedule.split(loop, [3, 4, 5])
    assert first_message(caught.value).startswith("The product of factors is not larger than or equal to the extent")
    with pytest.raises(tvm.error.InternalError) as refused:
        tvm.driver.build(schedule.mod, target=tvm.target.Target({"kind": "llvm", "mtriple": "foo-bar"}))
    assert "No available targets are compatible with triple" in first_message(refused.value)
    built = tvm.driver.build(schedule.mod, target=tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu"}))
    with pytest.raises(RuntimeError) as unlinked:
        built.export_library(str(tmp_path / "x.so"))
    assert re.match(r"\S*ld: \S+\.o: ", first_message(unlinked.value))
