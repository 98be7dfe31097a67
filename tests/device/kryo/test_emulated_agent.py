"""An agent on aarch64 that registers with a tracker: the same sessions as everywhere, on another architecture."""

from __future__ import annotations

import subprocess

from ..agents import LAYOUTLAB, Remote, serving, wait_until
from .emulated import emulated_agent


def test_it_serves_the_clients_of_a_tracker(toolchain, tmp_path):
    from tvm import rpc

    crash = tmp_path / "crash.so"
    (tmp_path / "crash.c").write_text("__attribute__((constructor)) void start(void) { __builtin_trap(); }\n")
    options = ["-target", "aarch64-linux-gnu.2.17", "-shared"]
    subprocess.run([toolchain.zig, "cc", *options, "-o", crash, tmp_path / "crash.c"], check=True)
    (tmp_path / "agent").mkdir()
    with serving([*LAYOUTLAB, "tracker", "--port", "0"], "tracker") as (_, port):
        place = f"127.0.0.1:{port}"
        with emulated_agent(toolchain, tmp_path / "agent", "--tracker", place, "--key", "arm", "--name", "board"):
            tracker = rpc.connect_tracker("127.0.0.1", port)
            for _ in range(2):
                remote = Remote(tracker.request("arm", session_timeout=60))
                assert remote.load(crash) == {"error": "crashed its process on the device (SIGTRAP)"}
                found = remote.ask("describe", 30)
                remote.close()
                wait_until(lambda: tracker.summary()["queue_info"]["arm"]["free"] == 1, "it registers again")
            tracker.close()
    assert (found["id"], found["machine"]) == ("board", "aarch64")
    # What its CPU can do is not what this machine's can.
    assert "asimd" in found["features"] and not {"sve", "atomics", "avx2"} & set(found["features"])
