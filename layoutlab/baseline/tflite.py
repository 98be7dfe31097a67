"""The baseline: TFLite, run by LiteRT's interpreter (see `device.runners.TFLiteRunner`)."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

# The name of the baseline's row; specs may not use it for a variant.
BASELINE = "tflite"


def versions() -> dict[str, str]:
    """Versions of everything a figure depends on, without importing any of it."""
    found = {}
    for package in ("layoutlab", "apache-tvm", "apache-tvm-ffi", "ai-edge-litert", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found
