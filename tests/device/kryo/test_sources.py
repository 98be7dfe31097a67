"""Which package sources have arm64 packages."""

from __future__ import annotations

import pytest

from layoutlab.device.kryo.sources import OVERRIDE, arm64_sources, has_entries, ubuntu_ports
from layoutlab.errors import DeviceError

ONE_LINE = """\
# the system's own
deb http://de.archive.example.org/ubuntu jammy main restricted
deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://archive.example.org/ubuntu/ jammy-updates main
  deb [arch=amd64] http://security.example.org/ubuntu jammy-security main
deb-src http://archive.example.org/ubuntu jammy main
# deb http://archive.example.org/ubuntu jammy-backports main
deb http://region.cloud.archive.example.org/ubuntu jammy universe
deb http://packages.example.com/tools stable main
deb http://archive.example.org/other jammy main
"""

DEB822 = """\
# the system's own
Types: deb deb-src
URIs: http://archive.example.org/ubuntu
 http://mirror.example.com/ubuntu
Suites: noble noble-updates
Components: main universe
Architectures: amd64
# a comment
Signed-By: /usr/share/keyrings/ubuntu.gpg

Types: deb
URIs: http://security.example.org/ubuntu/
Suites: noble-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 xyz

Types: deb-src
URIs: http://archive.example.org/ubuntu
Suites: noble
Components: main

Types: deb
URIs: https://packages.example.com/tools
Suites: stable
Components: main
"""


def test_one_line_entries_of_ubuntu_go_to_the_mirror_that_has_arm64():
    assert ubuntu_ports({"sources.list": ONE_LINE}) == {
        "sources.list": """\
deb http://ports.example.org/ubuntu-ports jammy main restricted
deb [signed-by=/usr/share/keyrings/x.gpg] https://ports.example.org/ubuntu-ports jammy-updates main
deb http://ports.example.org/ubuntu-ports jammy-security main
deb http://ports.example.org/ubuntu-ports jammy universe
"""
    }


def test_deb822_entries_of_ubuntu_go_to_the_mirror_that_has_arm64():
    assert ubuntu_ports({"ubuntu.sources": DEB822}) == {
        "ubuntu.sources": """\
Types: deb
URIs: http://ports.example.org/ubuntu-ports
Suites: noble noble-updates
Components: main universe
Signed-By: /usr/share/keyrings/ubuntu.gpg

Types: deb
URIs: http://ports.example.org/ubuntu-ports
Suites: noble-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 xyz
"""
    }


def test_entries_that_are_there_already_stay():
    text = "deb http://ports.example.org/ubuntu-ports jammy main\n"
    assert ubuntu_ports({"a.list": text}) == {"a.list": text}


def test_a_mirror_that_is_not_ubuntus_own_is_not_guessed_at():
    assert ubuntu_ports({"a.list": "deb http://mirror.example.org/ubuntu jammy main\n", "b.sources": ""}) == {}


@pytest.mark.parametrize("text", ["", "# deb http://x stable main\n", "Types: deb-src\nURIs: http://x\n"])
def test_files_without_binary_packages(text):
    assert not has_entries(text)


@pytest.mark.parametrize("text", ["deb http://x stable main\n", "Types: deb\nURIs: http://x\n", "Types: deb-src deb\n"])
def test_files_with_binary_packages(text):
    assert has_entries(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [("deb http://x stable main\n", "chosen.list"), ("Types: deb\nURIs: http://x\n", "chosen.sources")],
)
def test_a_chosen_file_is_taken_as_it_is_in_either_format(text, name, tmp_path, monkeypatch):
    (tmp_path / "mine").write_text(text)
    monkeypatch.setenv(OVERRIDE, str(tmp_path / "mine"))
    assert arm64_sources() == {name: text}


def test_a_chosen_file_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv(OVERRIDE, str(tmp_path / "mine"))
    with pytest.raises(DeviceError) as caught:
        arm64_sources()
    assert str(caught.value) == (
        f"LAYOUTLAB_ARM64_SOURCES names {tmp_path}/mine, which cannot be read: No such file or directory. "
        "It has to be a file of apt's, with package sources that have arm64"
    )


def test_a_chosen_file_without_sources(tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("http://x\n")
    monkeypatch.setenv(OVERRIDE, str(tmp_path / "mine"))
    with pytest.raises(DeviceError) as caught:
        arm64_sources()
    assert str(caught.value) == (
        f"LAYOUTLAB_ARM64_SOURCES names {tmp_path}/mine, which has no package source in it. "
        'Expected lines such as "deb URI SUITE COMPONENT", or fields such as "Types: deb"'
    )
