"""A real Chromium without a window, driven over its debugging pipe.

One that is installed is taken, or the one that `download` put into the cache folder. The protocol is that of
https://chromedevtools.github.io/devtools-protocol/: JSON messages that end with a null byte, on descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import fcntl
import io
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image

from layoutlab.device.kryo.debian import Apt, unpack
from layoutlab.device.kryo.recipe import cache_folder

_INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LIMIT_S = 30.0
# Fonts are matplotlib's: a downloaded browser has none, and a picture should not depend on what is installed.
_FONTS = """\
<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""


@dataclass(frozen=True)
class Chromium:
    """A program, and the environment that it needs."""

    program: Path
    environment: dict[str, str] = field(default_factory=dict)


def find() -> Chromium | None:
    """An installed Chromium, or a downloaded one; None when there is neither."""
    for name in _INSTALLED:
        if program := shutil.which(name):
            return Chromium(Path(program))
    return downloaded()


def downloaded() -> Chromium | None:
    """The Chromium that `download` made, if it did."""
    root = _folder()
    program = root / "usr/lib/chromium/chromium"
    if not program.exists():
        return None
    # PulseAudio's names the folder of its other half from the root, where on a bare machine there is none.
    places = ("*-linux-gnu", "*-linux-gnu/pulseaudio")
    libraries = [path for place in places for path in (root / "usr/lib").glob(place) if path.is_dir()]
    return Chromium(program, {"LD_LIBRARY_PATH": ":".join(map(str, libraries))})


def download() -> Chromium:
    """Debian's Chromium with all that it needs, unpacked into the cache folder, 700 MB. DeviceError says why not."""
    folder = _folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix="chromium-", suffix=".partial"))
    try:
        apt = Apt(partial / "apt", _ARCHITECTURES[platform.machine()])
        apt.update()
        unpack(apt.download(["chromium"], lambda: None), partial / "root", lambda _: None)
        os.replace(partial / "root", folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    found = downloaded()
    assert found is not None
    return found


def _folder() -> Path:
    return cache_folder() / "chromium"


class Page:
    """An open page. Every request that it makes, and every complaint of the browser's, is kept."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._number, self._pending, self._session = 0, b"", None
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def show(self, file: Path, width: int, height: int, scheme: str) -> None:
        """Open a file in a window of this size; `scheme` is light or dark."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._loaded = False
        self.call("Page.navigate", url=file.as_uri())
        while not self._loaded:
            self._note(self._next())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self) -> Image.Image:
        """What is in the window."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return Image.open(io.BytesIO(data)).convert("RGB")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of one command of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._note(answer)

    def _next(self) -> dict[str, Any]:
        ends_at = time.monotonic() + _LIMIT_S
        while b"\0" not in self._pending:
            assert time.monotonic() < ends_at, "the browser says nothing"
            try:
                piece = os.read(self._receive, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
                continue
            assert piece, "the browser ended"
            self._pending += piece
        message, self._pending = self._pending.split(b"\0", 1)
        return dict(json.loads(message))

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(parameters["exceptionDetails"]))
        elif method == "Page.loadEventFired":
            self._loaded = True


def _out_of_the_way(descriptor: int) -> int:
    """The same under a number other than those that the browser reads and writes."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


@contextmanager
def opened(chromium: Chromium, folder: Path) -> Iterator[Page]:
    """A page of a browser that ends with the context and keeps everything in `folder`."""
    fonts = folder / "fonts.conf"
    fonts.write_text(_FONTS.format(fonts=Path(matplotlib.get_data_path()) / "fonts" / "ttf", cache=folder / "fonts"))
    command = [
        str(chromium.program),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder / 'profile'}",
    ]
    there, send = map(_out_of_the_way, os.pipe())
    receive, back = map(_out_of_the_way, os.pipe())
    os.set_blocking(receive, False)
    environment = {**os.environ, **chromium.environment, "FONTCONFIG_FILE": str(fonts), "HOME": str(folder)}
    # The shell puts the two ends where Chromium expects them, and becomes Chromium.
    shell = ["bash", "-c", f'exec "$@" 3<&{there} 4>&{back}', "bash", *command]
    with open(folder / "chromium.log", "wb") as log:
        process = subprocess.Popen(shell, pass_fds=(there, back), env=environment, stdout=log, stderr=log)
    os.close(there)
    os.close(back)
    try:
        yield Page(send, receive)
    finally:
        process.terminate()
        process.wait(20)
        os.close(send)
        os.close(receive)
