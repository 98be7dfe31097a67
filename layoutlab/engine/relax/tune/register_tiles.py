"""Design spaces for convolutions as hand-written kernels compute them: a tile of outputs held in registers.

MetaSchedule's own rule tiles every loop several times and leaves the accumulators in memory, on the heap even, where
they take more than TVM's kilobyte of stack. Here a tile of some columns and some vectors of channels is accumulated
in registers over the whole reduction, as the kernels of XNNPACK and BLIS do (Van Zee and van de Geijn, "BLIS", ACM
TOMS 41(3), 2015). What is left to the search is the tile's shape, the order of the loops around it, how far the
reduction is unrolled, and where the padding is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from tvm import s_tir, tirx

# The longest row of outputs in a tile, and the most vectors of channels beside each other.
_MOST_COLUMNS, _MOST_VECTORS = 28, 7
# How far the innermost reduction is unrolled, and how many rows share a strip of padded input.
_UNROLLED, _ROWS = (1, 2, 4, 8), (1, 2, 4)
# The loops around a tile, outermost first: over strips of rows, the rows of a strip, tiles of columns, and of channels.
_BY_PIXEL = ("strips", "rows", "columns", "channels")
_BY_COLUMN = ("strips", "columns", "rows", "channels")
_BY_STRIP = ("strips", "channels", "rows", "columns")
_BY_CHANNEL = ("channels", "strips", "rows", "columns")
# Where the padded input is computed: as it is read ("inline"), or before, within one of the loops.
_UNPADDED = ((_BY_PIXEL, "inline"), (_BY_STRIP, "inline"), (_BY_CHANNEL, "inline"))
_PADDED = (
    *_UNPADDED,
    (_BY_PIXEL, "strips"),
    (_BY_PIXEL, "columns"),
    (_BY_COLUMN, "columns"),
    (_BY_STRIP, "strips"),
    (_BY_STRIP, "channels"),
    (_BY_CHANNEL, "channels"),
    (_BY_CHANNEL, "strips"),
)


@dataclass(frozen=True, kw_only=True)
class Registers:
    """What a target offers: floats in a vector register, the number of such registers, and cores.

    `inputs` of the registers are kept for input values: x86 reads one from memory as it multiplies, AArch64 loads
    some ahead.
    """

    floats: int
    count: int
    inputs: int
    cores: int


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """Where the loops of a convolution's block stand. `blocks` counts blocks of channels, None in unpacked layouts."""

    rows: int
    columns: int
    blocks: int | None
    channels: int
    reduction: tuple[int, ...]
    depthwise: bool = False


# By the names that TVM's TOPI and `layout/packed.py` give their blocks.
CONVOLUTIONS = {
    "conv2d_nhwc": Convolution(rows=1, columns=2, blocks=None, channels=3, reduction=(4, 5, 6)),
    "group_conv2d_nhwc": Convolution(rows=1, columns=2, blocks=None, channels=3, reduction=(4, 5, 6), depthwise=True),
    "conv2d_NCHWc": Convolution(rows=2, columns=3, blocks=1, channels=4, reduction=(5, 6, 7, 8)),
    "depthwise_conv2d_NCHWc": Convolution(rows=2, columns=3, blocks=1, channels=4, reduction=(5, 6), depthwise=True),
}


def has_register_tiles(mod: Any, registers: Registers) -> bool:
    """Whether `register_tiles` finds any design space; far quicker than making them."""
    return next(_spaces(mod, registers), None) is not None


def register_tiles(mod: Any, registers: Registers) -> list[s_tir.Schedule]:
    """The design spaces of a function whose main block is one of CONVOLUTIONS; none for any other function."""
    return [space.schedule() for space in _spaces(mod, registers)]


def _spaces(mod: Any, registers: Registers) -> Iterator[_Space]:
    sch = s_tir.Schedule(mod)
    blocks = {str(sch.get(block).name_hint): block for block in sch.get_child_blocks(sch.get_sblock("root"))}
    known = [name for name in blocks if name in CONVOLUTIONS]
    if len(known) != 1 or not _fits(sch, blocks[known[0]], CONVOLUTIONS[known[0]]):
        return
    if sch.get_consumers(blocks[known[0]]) and _behind(sch, blocks[known[0]]) is None:
        return
    padded = any(_pads(sch, block) for block in sch.get_producers(blocks[known[0]]))
    for vectors, (order, padding) in product(range(1, _MOST_VECTORS + 1), _PADDED if padded else _UNPADDED):
        space = _Space(mod, known[0], registers, vectors, order, padding)
        if space.is_possible():
            yield space


def _behind(sch: s_tir.Schedule, conv: Any) -> tuple[Any, list[Any]] | None:
    """The block that stores what a convolution's result becomes, and all others it needs besides the convolution.

    None when it ends in several places, or when what is between cannot be computed where the result is stored: sums,
    and padding, which the convolution may need as well.
    """
    ends = [block for block in _reached(sch, conv, sch.get_consumers) if not sch.get_consumers(block)]
    if len(ends) != 1:
        return None
    others = _reached(sch, ends[0], sch.get_producers, stop=_name(sch, conv))
    padding = [_name(sch, block) for block in sch.get_producers(conv) if _pads(sch, block)]
    if any(_reduces(sch, block) or _name(sch, block) in padding for block in (ends[0], *others)):
        return None
    return ends[0], others


def _reached(
    sch: s_tir.Schedule, block: Any, neighbours: Callable[[Any], Sequence[Any]], stop: str | None = None
) -> list[Any]:
    """The blocks before or behind one, each once, nearest first; without the one named `stop` and what is beyond it."""
    found: dict[str, Any] = {}
    waiting = list(neighbours(block))
    while waiting:
        reached = waiting.pop(0)
        # Asked for again, a block is a new object: names tell them apart.
        name = _name(sch, reached)
        if name != stop and name not in found:
            found[name] = reached
            waiting += neighbours(reached)
    return list(found.values())


def _name(sch: s_tir.Schedule, block: Any) -> str:
    return str(sch.get(block).name_hint)


def _reduces(sch: s_tir.Schedule, block: Any) -> bool:
    return any(axis.iter_type == tirx.IterVar.CommReduce for axis in sch.get(block).iter_vars)


def _fits(sch: s_tir.Schedule, block: Any, conv: Convolution) -> bool:
    """Whether channels are laid out as expected: of grouped convolutions, only plain depthwise ones in NHWC are."""
    if not conv.depthwise or conv.blocks is not None:
        return True
    data = sch.get(block).reads[0].source
    channels, reduced = (_extent(sch, sch.get_loops(block)[at]) for at in (conv.channels, conv.reduction[-1]))
    return int(data.shape[-1]) == channels and reduced == 1


def _pads(sch: s_tir.Schedule, block: Any) -> bool:
    """Whether a block in front of a convolution adds zeros; without padding TOPI makes one that only copies."""
    value = sch.get(block).body.value
    return getattr(getattr(value, "op", None), "name", "") == "prim.if_then_else"


def _extent(sch: s_tir.Schedule, loop: Any) -> int:
    return int(sch.get(loop).extent)


class _Space:
    """One design space: `vectors` of channels in a tile, the loops around it in `order`, and the place of `padding`."""

    def __init__(
        self, mod: Any, name: str, registers: Registers, vectors: int, order: tuple[str, ...], padding: str
    ) -> None:
        self._sch = s_tir.Schedule(mod)
        self._conv = CONVOLUTIONS[name]
        self._block = self._sch.get_sblock(name)
        self._registers, self._vectors, self._order, self._padding = registers, vectors, order, padding
        loops = self._sch.get_loops(self._block)
        self._batch, self._rows, self._columns = loops[0], loops[self._conv.rows], loops[self._conv.columns]
        self._channels = loops[self._conv.channels]
        self._blocks = None if self._conv.blocks is None else loops[self._conv.blocks]
        self._reduction = [loops[position] for position in self._conv.reduction]

    def is_possible(self) -> bool:
        """Whether the channels can be tiled so, and the accumulators fit the registers."""
        blocks = self._extent(self._channels) // self._floats if self._blocks is None else self._extent(self._blocks)
        return blocks % self._vectors == 0 and self._widest() >= 1

    def _extent(self, loop: Any) -> int:
        return _extent(self._sch, loop)

    @property
    def _floats(self) -> int:
        """Floats in the vectors of the tile: as many as a register holds, where that divides the channels."""
        return self._lanes(self._channels) if self._blocks is None else self._extent(self._channels)

    def _widest(self) -> int:
        """Most columns of a tile: accumulators, a row of weights and some inputs have to fit into the registers."""
        weights = 0 if self._conv.depthwise else self._vectors
        per_vector = max(1, self._floats // self._registers.floats)
        return (self._registers.count - self._registers.inputs - weights * per_vector) // (self._vectors * per_vector)

    def schedule(self) -> s_tir.Schedule:
        """The space as a schedule whose samples are the choices left."""
        sch = self._sch
        last = self._inline_what_follows()
        around = self._tile()
        sch.set_scope(self._block, 0, "local")
        sch.reverse_compute_at(last, around[self._order[-1]], preserve_unit_loops=True)
        self._place_padding(around)
        if self._registers.cores > 1:
            sch.parallel(around[self._order[0]])
        self._vectorise_store(last)
        self._vectorise_store(sch.decompose_reduction(self._block, self._reduction[0]))
        return sch

    def _inline_what_follows(self) -> Any:
        """Compute bias, activation and addition where the result is stored; returns that last block.

        What is used twice on the way, as in a PReLU, or comes from beside, as the other side of an addition does, is
        computed there too.
        """
        if not self._sch.get_consumers(self._block):
            # Nothing was fused: accumulators are no parameter of a function, so another block stores them.
            return self._sch.cache_write(self._block, 0, "local")
        found = _behind(self._sch, self._block)
        assert found is not None
        last, others = found
        for block in others:
            self._sch.compute_inline(block)
        return last

    def _tile(self) -> dict[str, Any]:
        """Split, order, unroll and vectorise the loops; returns those around the tile by their names."""
        sch = self._sch
        columns, tile_columns = self._split(self._columns, range(1, min(self._widest(), _MOST_COLUMNS) + 1))
        if self._blocks is None:
            channels, tile_blocks, lanes = sch.split(self._channels, [None, self._vectors, self._floats])
        else:
            (channels, tile_blocks), lanes = sch.split(self._blocks, [None, self._vectors]), self._channels
        strips, rows = self._split(self._rows, _ROWS if self._rows_share_padding() else (1,))
        unrolled = list(self._reduction)
        if not self._conv.depthwise:
            steps, step = self._split(self._reduction[-1], _UNROLLED)
            self._reduction, unrolled = [*self._reduction[:-1], steps, step], [step]
        around = {"strips": strips, "rows": rows, "columns": columns, "channels": channels}
        sch.reorder(
            self._batch, *(around[name] for name in self._order), *self._reduction, tile_columns, tile_blocks, lanes
        )
        # Several images, or one, make one outermost loop with what comes first.
        around[self._order[0]] = sch.fuse(self._batch, around[self._order[0]])
        for loop in (*unrolled, tile_columns, tile_blocks):
            sch.unroll(loop)
        sch.vectorize(lanes)
        return around

    def _rows_share_padding(self) -> bool:
        order = self._order
        return self._padding != "inline" and order.index(self._padding) < order.index("rows")

    def _split(self, loop: Any, sizes: Sequence[int]) -> list[Any]:
        """Split a loop in two, the inner one of a sampled extent out of `sizes` that divides the loop's."""
        fitting = [size for size in sizes if self._extent(loop) % size == 0]
        size = fitting[0]
        if len(fitting) > 1:
            size = self._sch.sample_categorical(fitting, [1 / len(fitting)] * len(fitting))
        return list(self._sch.split(loop, [None, size]))

    def _place_padding(self, around: dict[str, Any]) -> None:
        sch = self._sch
        for block in sch.get_producers(self._block):
            if self._padding == "inline" or not _pads(sch, block):
                sch.compute_inline(block)
                continue
            sch.compute_at(block, around[self._padding], preserve_unit_loops=True)
            channels = sch.get_loops(block)[-1]
            sch.vectorize(sch.split(channels, [None, self._lanes(channels)])[1])

    def _lanes(self, loop: Any) -> int:
        """The longest vector, of a power of two, that divides a loop."""
        lanes = self._registers.floats
        while self._extent(loop) % lanes:
            lanes //= 2
        return lanes

    def _vectorise_store(self, block: Any) -> None:
        """Unroll the loops of a block within the tile, and write its channels as vectors."""
        sch = self._sch
        *loops, channels = sch.get_loops(block)[len(self._order) :]
        pieces, lanes = sch.split(channels, [None, self._lanes(channels)])
        for loop in (*loops, pieces):
            sch.unroll(loop)
        sch.vectorize(lanes)
