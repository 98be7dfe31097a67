"""How a tensor is stored: the order of its axes, and at most one of them split into blocks, the block innermost.

Everything here is plain Python and numpy: no TVM. Logical axes are those of the tensor as it was imported; stored
axes are those of the array that is really kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Storage:
    """The stored order of a tensor's logical axes, and the axis that is split (None: none) in blocks of `block`.

    `NCHW8c` of a tensor imported as NHWC is Storage((0, 3, 1, 2), 3, 8): stored shape [N, C/8, H, W, 8]. With `pad`
    the last block may be filled up with zeros, or with whatever operators make of them.
    """

    order: tuple[int, ...]
    split: int | None = None
    block: int = 1
    pad: bool = False

    @classmethod
    def plain(cls, rank: int) -> Storage:
        """The tensor as it was imported."""
        return cls(tuple(range(rank)))

    @classmethod
    def from_layout(cls, layout: str, imported: str, pad: bool = False) -> Storage:
        """From layout strings as TVM writes them, such as `NCHW8c` for a tensor imported as `NHWC`."""
        capitals = [letter for letter in layout if letter.isupper()]
        order = tuple(imported.index(letter) for letter in capitals)
        if len(capitals) == len(layout):
            return cls(order)
        return cls(order, imported.index(layout[-1].upper()), int("".join(c for c in layout if c.isdigit())), pad)

    def layout(self, imported: str) -> str:
        """The layout string of this storage for a tensor imported as `imported`."""
        plain = "".join(imported[axis] for axis in self.order)
        return plain if self.split is None else f"{plain}{self.block}{imported[self.split].lower()}"

    @property
    def is_plain(self) -> bool:
        """Whether this is the tensor as it was imported."""
        return self == Storage.plain(len(self.order))

    def fits(self, shape: Shape) -> bool:
        """Whether a tensor of this logical shape can be stored so."""
        return len(shape) == len(self.order) and (self.pad or not self.padded(shape))

    def padded(self, shape: Shape) -> bool:
        """Whether a tensor of this logical shape leaves its last block unfilled."""
        return self.split is not None and shape[self.split] % self.block != 0

    def for_shape(self, shape: Shape) -> Storage:
        """The same storage in its simplest form for a tensor of this logical shape.

        An axis of extent 1, which broadcasts, is split into blocks of 1; `pad` stays only where it is needed.
        """
        if self.split is None:
            return self
        if shape[self.split] == 1:
            return Storage(self.order, self.split, 1)
        return Storage(self.order, self.split, self.block, self.padded(shape))

    def positions(self, axis: int) -> tuple[int, ...]:
        """Where a logical axis is stored: one position, or its outer and inner one."""
        outer = self.order.index(axis)
        return (outer, len(self.order)) if axis == self.split else (outer,)

    def shape(self, logical: Shape) -> Shape:
        """The stored shape of a tensor of this logical shape."""
        stored = tuple(-(-logical[axis] // (self.block if axis == self.split else 1)) for axis in self.order)
        return stored if self.split is None else (*stored, self.block)

    def indices(self, stored: tuple, target: Storage) -> list:
        """Stored indices of `target` for stored indices of this one; works on ints and on TVM expressions."""
        logical = {axis: stored[position] for position, axis in enumerate(self.order)}
        if self.split is not None:
            logical[self.split] = logical[self.split] * self.block + stored[-1]
        found = [logical[axis] // target.block if axis == target.split else logical[axis] for axis in target.order]
        if target.split is not None:
            found.append(logical[target.split] % target.block)
        return found

    def store(self, array: np.ndarray) -> np.ndarray:
        """A logical array as it is stored, the last block filled up with zeros."""
        if self.padded(array.shape):
            widths = [(0, -extent % self.block if axis == self.split else 0) for axis, extent in enumerate(array.shape)]
            array = np.pad(array, widths)
        moved = array.transpose(self.order)
        if self.split is None:
            return np.ascontiguousarray(moved)
        at = self.order.index(self.split)
        shape = moved.shape
        blocks = moved.reshape(*shape[:at], shape[at] // self.block, self.block, *shape[at + 1 :])
        return np.ascontiguousarray(np.moveaxis(blocks, at + 1, -1))

    def without(self, axes: set[int]) -> Storage:
        """The storage of what is left when these logical axes are reduced away; the others are renumbered."""
        left = [axis for axis in range(len(self.order)) if axis not in axes]
        number = {axis: position for position, axis in enumerate(left)}
        order = tuple(number[axis] for axis in self.order if axis in number)
        if self.split is None or self.split in axes:
            return Storage(order)
        return Storage(order, number[self.split], self.block, self.pad)


def same_memory(a: Storage, b: Storage, shape: Shape) -> bool:
    """Whether both keep a tensor of this logical shape in the same order in memory: a change is then free."""
    if a.padded(shape) or b.padded(shape):
        return a == b
    return _digits(a, shape) == _digits(b, shape)


def _digits(storage: Storage, shape: Shape) -> list[tuple[int, int]]:
    """The parts of axes in memory order, as (axis, weight of the part); parts of extent 1 take no place."""
    parts: list[tuple[int, int, int]] = []
    for axis in storage.order:
        weight = storage.block if axis == storage.split else 1
        parts.append((axis, weight, shape[axis] // weight))
    if storage.split is not None:
        parts.append((storage.split, 1, storage.block))
    merged: list[tuple[int, int]] = []
    for axis, weight, extent in parts:
        if extent == 1:
            continue
        if merged and merged[-1][0] == axis:
            merged[-1] = (axis, weight)  # an outer part directly before its inner one is the whole axis
        else:
            merged.append((axis, weight))
    return merged
