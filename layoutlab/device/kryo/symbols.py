"""Which part of a process an address belongs to: a function of the built variant, or a library as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

_PAGE = 4096
# TVM makes two symbols of one function: the checks of its arguments, and what it computes.
_PREFIX, _SUFFIX = "__tvm_ffi_", "_compute_"
# What a Relay-era TVM puts before the name of every function of a graph.
_RELAY_PREFIX = "tvmgen_default_"
# What a library brings itself to be run, where that is not TVM's runtime (engine/relay/executor/runtime.c).
_EXECUTOR = "layoutlab_"

Part = tuple[int, int, str]


def parts_of(loaded: Iterable[Part], variant: Path | None) -> list[Part]:
    """(first address, address after the last, name) of each part of a process, by address.

    `loaded` are the (start, end, path) of its executable mappings. The library at `variant` is taken apart into
    TVM's functions; any other is one part, named `[libc.so.6]`.
    """
    parts: list[Part] = []
    for start, end, path in loaded:
        if variant is not None and path == str(variant):
            parts += _functions(variant, start, end)
        else:
            parts.append((start, end, f"[{Path(path).name}]"))
    return sorted(parts)


def _functions(library: Path, start: int, end: int) -> list[Part]:
    """The functions of a library whose code is mapped from `start` to `end`."""
    with open(library, "rb") as file:
        elf = ELFFile(file)
        code = next(segment for segment in elf.iter_segments("PT_LOAD") if segment["p_flags"] & 1)
        offset = start - code["p_vaddr"] // _PAGE * _PAGE
        table = elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection), f"{library} has no symbols"
        names = {
            symbol["st_value"] + offset: symbol.name
            for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
        }
    # The bodies of parallel loops have no symbols; LLVM puts them behind the function that they are part of.
    ends = [*sorted(names), end]
    return [(first, after, _name(names[first])) for first, after in itertools.pairwise(ends)]


def _name(symbol: str) -> str:
    if symbol.startswith(_EXECUTOR):
        return "[executor]"
    return symbol.removeprefix(_PREFIX).removeprefix(_RELAY_PREFIX).removesuffix(_SUFFIX)
