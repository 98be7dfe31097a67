"""What a layout hook says about each convolution of a Relay module, decided here, where hooks can be imported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from layoutlab.errors import StageError
from layoutlab.hooks import Conv, ConvLayout, Hook, Nchwc, Numbered, Table

_PACKED = re.compile(r"NCHW(\d+)c")
_PLAIN = {"NHWC": ("HWIO", "HWOI"), "NCHW": ("OIHW",)}
_CONVS: TypeAdapter[list[Conv]] = TypeAdapter(list[Conv])


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One convolution after ConvertLayout: the hook's answer (None: keep), what is done of it, and why."""

    conv: Conv
    answer: ConvLayout | None
    applied: ConvLayout | None
    why: str

    def to_inside(self) -> list[str] | None:
        """As `inside.layouts` takes it."""
        return None if self.applied is None else [self.applied.data, self.applied.kernel, self.applied.out]


def read_convs(data: Sequence[dict[str, Any]]) -> list[Conv]:
    """The convolutions as `inside.convs.describe_conv` writes them."""
    return _CONVS.validate_python(data)


def decide(convs: Sequence[Conv], hook: Hook | None, before: str) -> list[Decision]:
    """Ask the hook for every convolution; `before` says what gave them the layout they have.

    Raises StageError("layout") when the hook raises, or answers with something that Relay has no operator for.
    """
    return [_decide(conv, hook, before) for conv in convs]


def _decide(conv: Conv, hook: Hook | None, before: str) -> Decision:
    if hook is None:
        return Decision(conv=conv, answer=None, applied=None, why=before)
    answer = _ask(hook, conv)
    if answer is None:
        reason = hook.why_kept(conv) if isinstance(hook, Nchwc | Table | Numbered) else ""
        why = f"{before}; the hook keeps it" + (f": {reason}" if reason else "")
        return Decision(conv=conv, answer=None, applied=None, why=why)
    if _PACKED.fullmatch(answer.data) and conv.groups > 1 and not conv.is_depthwise:
        why = f"{before}; Relay has no packed convolution with groups"
        return Decision(conv=conv, answer=answer, applied=None, why=why)
    _require_supported(conv, answer)
    return Decision(conv=conv, answer=answer, applied=answer, why="the hook")


def _ask(hook: Hook, conv: Conv) -> ConvLayout | None:
    try:
        answer = hook(conv)
    except Exception as error:
        raise StageError("layout", f"the hook failed on convolution {conv.index}: {error!r}") from error
    if answer is not None and not isinstance(answer, ConvLayout):
        raise StageError(
            "layout", f"the hook answered {answer!r} for convolution {conv.index}: expected a ConvLayout or None"
        )
    return answer


def _require_supported(conv: Conv, answer: ConvLayout) -> None:
    where = f"convolution {conv.index}: the hook asks for data {answer.data}, kernel {answer.kernel}, out {answer.out}"
    if answer.pad:
        raise StageError("layout", f"{where} with padded channels, which the Relay engine does not have")
    data, out = _PACKED.fullmatch(answer.data), _PACKED.fullmatch(answer.out)
    if data and out:
        if conv.in_channels % int(data[1]) or conv.out_channels % int(out[1]):
            raise StageError("layout", f"{where}, but its channels do not divide by these blocks")
    elif answer.data != answer.out or answer.kernel not in _PLAIN.get(answer.data, ()):
        raise StageError(
            "layout", f"{where}, which Relay has no operator for: expected NHWC, NCHW or NCHW<block>c for data and out"
        )


def require_change(
    decisions: Sequence[Decision], imported: Sequence[Conv], convert_layout: str | None, hook: Hook | None
) -> None:
    """Fail a variant whose requested layout changed nothing: its row would pass one layout off as another.

    Raises StageError("layout").
    """
    converted = any(decision.conv.layout != conv.layout for decision, conv in zip(decisions, imported, strict=True))
    altered = any(decision.applied not in (None, decision.conv.layout) for decision in decisions)
    packs_nothing = isinstance(hook, Nchwc) and not altered
    answered = any(decision.answer is not None for decision in decisions)
    if (converted and not packs_nothing) or altered:
        return
    if not packs_nothing and not answered and convert_layout is None:
        return
    asked = "the hook" if packs_nothing or answered else f"convert_layout: {convert_layout}"
    if not decisions:
        raise StageError("layout", f"{asked} was asked for, but the model has no conv2d to convert")
    layouts = ", ".join(sorted({str(decision.conv.layout) for decision in decisions}))
    raise StageError(
        "layout",
        f"{asked} changed nothing: all {len(decisions)} convolutions stay {layouts} ({decisions[0].why}). "
        "Leave it out to compare the model as it is, or ask for a layout their channels allow",
    )
