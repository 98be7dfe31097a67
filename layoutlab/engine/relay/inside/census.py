"""Convolutions by the layout they really have, and the layout transforms left in a lowered module."""

from tvm import relay

from .convs import ALL_CONVS, calls_of, layout_label, shape_of

_TRANSFORMS = ("layout_transform", "transpose")
BYTES = {"float16": 2, "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "int64": 8, "float64": 8}


def take_census(mod):
    """`{"conv_layouts": {label: count}, "transforms": [...]}` of an unfused module, see layoutlab's `Census`."""
    calls = calls_of(mod["main"])
    layouts = {}
    for call in calls:
        if call.op.name in ALL_CONVS:
            label = layout_label(call)
            layouts[label] = layouts.get(label, 0) + 1
    users = _users(calls)
    transforms = [_transform(call, users) for call in calls if _moves(call)]
    return {"conv_layouts": layouts, "transforms": transforms}


def _moves(call):
    return call.op.name in _TRANSFORMS and not isinstance(call.args[0], relay.Constant)


def _transform(call, users):
    before, after = shape_of(call.args[0]), shape_of(call)
    size = BYTES.get(str(call.checked_type.dtype), 4)
    return {
        "op": call.op.name,
        "after": _name(call.args[0]),
        "before": users.get(hash(call), "output"),
        "from_shape": before,
        "to_shape": after,
        "moved_bytes": size * (_count(before) + _count(after)),
    }


def _users(calls):
    """The name of the first operator that reads each expression, by the expression's hash (its identity)."""
    users = {}
    for call in calls:
        for argument in call.args:
            parts = argument.fields if isinstance(argument, relay.Tuple) else [argument]
            for part in parts:
                users.setdefault(hash(part), call.op.name)
    return users


def _name(expr):
    if isinstance(expr, relay.Call):
        return getattr(expr.op, "name", "call")
    return "input" if isinstance(expr, relay.Var) else type(expr).__name__.lower()


def _count(shape):
    count = 1
    for extent in shape:
        count *= extent
    return count
