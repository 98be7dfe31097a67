"""Plain data: which operators of a .tflite file each executed function of a built variant computes."""

from __future__ import annotations

from dataclasses import dataclass, field

# Why an operator is in no function.
AT_COMPILE_TIME = "computed at compile time from constants"
AS_VIEW = "moves nothing: its result is its input under another shape"
COMPUTED_ONCE = "the same as operator {}, and computed once for both"
UNUSED = "nothing needs its result"
NOT_IMPORTED = "TVM imports it as a constant, or as its input"
UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator of the .tflite file.

    `index`: its number in execution order, from 0; `type`: the schema's name, such as CONV_2D; `output` and `shape`:
    name and shape of its first output tensor; `window`: kernel and stride of convolutions and poolings, such as
    "3x3/2", the stride where it is not 1; `flop` and `bytes`: see `model.work`.
    """

    index: int
    type: str
    output: str
    shape: tuple[int, ...]
    flop: int
    bytes: int
    window: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExecutedFunction:
    """One call of a compiled function in an inference.

    `node`: its number in execution order, from 0; `function`: its symbol in the library, which several calls may share;
    `task`: the tuning task of the function; `ops`: indices of the operators whose output it computes, or would, were
    they not fused; `parts`: those of which it computes a part, the output being computed by a later function;
    `transforms`: changes of layout in it, such as "layout_transform NHWC->NCHW4c"; `shape`, `dtype` and `layout`: those
    of its output as stored, the layout for images alone; `flop`: of its `ops`; `bytes`: all that it reads and writes,
    each tensor once, constants included.
    """

    node: int
    function: str
    task: str | None
    ops: tuple[int, ...]
    parts: tuple[int, ...]
    transforms: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    layout: str | None
    flop: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """All operators of a model, the functions that a variant executes for them, and why an operator is in none.

    Every operator is either in the `ops` of exactly one function or in `removed`.
    """

    operators: tuple[Operator, ...]
    functions: tuple[ExecutedFunction, ...]
    removed: dict[int, str] = field(default_factory=dict)

    @property
    def homes(self) -> dict[int, int]:
        """For each operator the node of the function that computes its output; without those that are in none."""
        return dict(sorted((op, function.node) for function in self.functions for op in function.ops))
