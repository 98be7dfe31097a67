"""Which of TVM's passes a variant is compiled with.

TVM looks at its pass context where a `Sequential` begins one of its passes, and nowhere else: a pass that is called by
itself runs in any case. So what a spec may leave out is run in a `Sequential` here.
"""

from __future__ import annotations

import tvm
import tvm_ffi

from layoutlab.engine.base import PassOptions
from layoutlab.errors import StageError
from layoutlab.spec.words import did_you_mean

# Where TVM registers the passes of each level of its IR.
_REGISTERED = ".transform."
_RELAX = "relax"
# TVM 0.27's own default.
_OPT_LEVEL = 2


def pass_context(options: PassOptions) -> tvm.transform.PassContext:
    """What to compile in, as a context manager."""
    level = _OPT_LEVEL if options.opt_level is None else options.opt_level
    return tvm.transform.PassContext(opt_level=level, disabled_pass=list(options.disabled))


def require_known(options: PassOptions) -> None:
    """Raise StageError("lower"), naming each, for disabled passes that TVM does not have: it would ignore them."""
    if not options.disabled:
        return
    known = _names()
    unknown = [f'"{name}"{did_you_mean(name, known)}' for name in options.disabled if name not in known]
    if unknown:
        raise StageError("lower", f"passes.disabled: TVM {tvm.__version__} has no pass {'; no pass '.join(unknown)}")


def _names() -> list[str]:
    """TVM's passes: those of Relax by their bare name, the others as tirx.Name and s_tir.Name."""
    found = []
    for registered in map(str, tvm_ffi.registry.list_global_func_names()):
        level, separator, name = registered.partition(_REGISTERED)
        if separator and "." not in level:
            found.append(name if level == _RELAX else f"{level}.{name}")
    return sorted(found)
