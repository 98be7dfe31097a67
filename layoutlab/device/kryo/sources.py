"""The package sources of this machine that have arm64 packages."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from layoutlab.errors import DeviceError

# A file in apt's format (one-line or deb822) to use for arm64 packages in place of the machine's own sources.
OVERRIDE = "LAYOUTLAB_ARM64_SOURCES"

_APT = Path("/etc/apt")

# Ubuntu's own hosts: `archive.`, `us.archive.`, `region.cloud.archive.`, `security.`, each with the path /ubuntu.
_UBUNTU = re.compile(r"^(?P<scheme>https?://)(?:[\w-]+\.)*?(?:archive|security)\.(?P<domain>[^/]+)/ubuntu/?$")
_PORTS = re.compile(r"^https?://(?:[\w-]+\.)*?ports\.[^/]+(?:/ubuntu-ports)?/?$")
_ONE_LINE = re.compile(r"^\s*deb\s+(?P<options>\[[^\]]*\]\s+)?(?P<uri>\S+)\s+(?P<rest>\S.*)$")


def arm64_sources() -> dict[str, str]:
    """Files of package sources for arm64, by name; empty when this machine's have none as far as can be seen.

    Raises DeviceError when the file named by LAYOUTLAB_ARM64_SOURCES cannot be read.
    """
    if chosen := os.environ.get(OVERRIDE):
        return _chosen(Path(chosen))
    files = _machine_sources()
    if not any(has_entries(text) for text in files.values()):
        return {}
    return ubuntu_ports(files) if _is_ubuntu() else files


def ubuntu_ports(files: Mapping[str, str]) -> dict[str, str]:
    """Ubuntu's own entries among `files` (name and text), for the mirror that has arm64; anything else is left out."""
    rewritten = {
        name: _rewrite_deb822(text) if name.endswith(".sources") else _rewrite_one_line(text)
        for name, text in files.items()
    }
    return {name: text for name, text in rewritten.items() if text}


def has_entries(text: str) -> bool:
    """Whether a file of sources, of either format, names any source of binary packages."""
    return bool(re.search(r"^(\s*deb\s|Types:(.*\s)?deb(\s|$))", text, re.MULTILINE))


def _chosen(path: Path) -> dict[str, str]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DeviceError(
            f"{OVERRIDE} names {path}, which cannot be read: {reason}. "
            "It has to be a file of apt's, with package sources that have arm64"
        ) from None
    if not has_entries(text):
        raise DeviceError(
            f"{OVERRIDE} names {path}, which has no package source in it. "
            'Expected lines such as "deb URI SUITE COMPONENT", or fields such as "Types: deb"'
        )
    return {"chosen.sources" if re.search(r"^Types:", text, re.MULTILINE) else "chosen.list": text}


def _machine_sources() -> dict[str, str]:
    parts = _APT / "sources.list.d"
    paths = [_APT / "sources.list", *sorted(parts.glob("*.list")), *sorted(parts.glob("*.sources"))]
    return {path.name: path.read_text(errors="replace") for path in paths if os.access(path, os.R_OK)}


def _is_ubuntu() -> bool:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return False
    return "ubuntu" in [release.get("ID"), *release.get("ID_LIKE", "").split()]


def _rewrite_uri(uri: str) -> str | None:
    """The same on the mirror that has arm64; None for what is not Ubuntu's own."""
    if _PORTS.match(uri):
        return uri
    found = _UBUNTU.match(uri)
    return f"{found['scheme']}ports.{found['domain']}/ubuntu-ports" if found else None


def _rewrite_one_line(text: str) -> str:
    lines = []
    for line in text.splitlines():
        found = _ONE_LINE.match(line)
        uri = _rewrite_uri(found["uri"]) if found else None
        if found and uri:
            lines.append(f"deb {_without_architectures(found['options'] or '')}{uri} {found['rest']}\n")
    return "".join(lines)


def _without_architectures(options: str) -> str:
    kept = [option for option in options.strip().strip("[]").split() if not re.match(r"arch[-+]?=", option)]
    return f"[{' '.join(kept)}] " if kept else ""


def _rewrite_deb822(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    stanzas = map(_rewrite_stanza, re.split(r"\n\s*\n", "\n".join(lines).strip()))
    return "\n".join(f"{stanza}\n" for stanza in stanzas if stanza)


def _rewrite_stanza(stanza: str) -> str:
    fields = _fields(stanza)
    uris = [uri for uri in map(_rewrite_uri, fields.get("uris", ("", ""))[1].split()) if uri]
    if not uris or "deb" not in fields.get("types", ("", ""))[1].split():
        return ""
    changed = {"types": "Types: deb", "uris": f"URIs: {' '.join(uris)}"}
    dropped = ("architectures", "architectures-add", "architectures-remove")
    return "\n".join(changed.get(name, text) for name, (text, _) in fields.items() if name not in dropped)


def _fields(stanza: str) -> dict[str, tuple[str, str]]:
    """Name in lower case to the field's own text and its value; a field goes on in lines that begin with a space."""
    fields = {}
    for text in re.split(r"\n(?=\S)", stanza):
        name, _, value = text.partition(":")
        fields[name.strip().lower()] = (text, value)
    return fields
