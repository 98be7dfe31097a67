"""Which operators of the .tflite file each function of a built graph computes.

The frontend leaves the name of an operator's output in the span of what it makes of it; passes lose spans but keep the
order. So the calls of the imported module, of the lowered one and of the fused one are laid side by side.
"""

import difflib

import tvm
from tvm import relay

from .census import BYTES
from .convs import ALL_CONVS, calls_of, layout_label

_SAME = {"nn.bias_add": "add", "nn.contrib_dense_pack": "nn.dense"}


def list_executed(imported, lowered, fused, outputs, graph):
    """For each function that an inference calls, in order, what it is; None where the modules do not fit together.

    `lowered` is the unfused, `fused` the fused form of one module, `outputs` the names of the outputs of each operator
    of the model, joined as the frontend does, and `graph` what the build wrote.
    """
    origin = _origins(imported, lowered, outputs)
    calls = _fused_calls(fused)
    nodes = [node["attrs"]["func_name"] for node in graph["nodes"] if node["op"] == "tvm_op"]
    if [_has_conv(call) for call in calls] != ["conv2d" in name for name in nodes]:
        return None
    origin = _carry(
        calls_of(lowered["main"]), origin, [call for fused_call in calls for call in calls_of(fused_call.op)]
    )
    found, at = [], 0
    for call, name in zip(calls, nodes):
        inner = calls_of(call.op)
        ops = origin[at : at + len(inner)]
        at += len(inner)
        found.append(dict(_describe(call, inner), name=name, ops=sorted(set(op for op in ops if op is not None))))
    return [function for function in found if function["name"] != "__nop"]


def output_names(model_path):
    """The names of each operator's outputs, joined as the frontend joins them for spans."""
    import tflite
    from tvm.relay.frontend.tflite import get_tensor_name

    with open(model_path, "rb") as file:
        graph = tflite.Model.GetRootAsModel(file.read(), 0).Subgraphs(0)
    names = []
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        outputs = [operator.Outputs(at) for at in range(operator.OutputsLength())]
        names.append(", ".join(get_tensor_name(graph, output) for output in outputs))
    return names


def positions(mod, outputs):
    """Of each call of `main`, in the order they run in, the number of its operator in the model; None: unknown."""
    numbers = {name: index for index, name in enumerate(outputs)}
    return [numbers.get(_span(call)) for call in calls_of(mod["main"])]


def conv_numbers(mod, outputs):
    """The numbers of the convolutions of an imported module in the model's own order, which branches can differ from.

    A frontend that leaves no spans tells no order but that in which TVM visits them.
    """
    conv = [call.op.name in ALL_CONVS for call in calls_of(mod["main"])]
    places = [place for place, is_conv in zip(positions(mod, outputs), conv) if is_conv]
    if None in places or len(set(places)) < len(places):
        return list(range(len(places)))
    return [sorted(places).index(place) for place in places]


def _span(call):
    span = call.span
    return None if span is None else str(getattr(span, "source_name", span).name)


def _origins(imported, lowered, outputs):
    return _carry(calls_of(imported["main"]), positions(imported, outputs), calls_of(lowered["main"]))


def _carry(before, values, after):
    """The values of calls for the calls of a later form of the module: those of the same kind at the same place."""
    kinds = [[_kind(call) for call in calls] for calls in (before, after)]
    carried = [None] * len(after)
    for here, there, count in difflib.SequenceMatcher(None, kinds[0], kinds[1], autojunk=False).get_matching_blocks():
        carried[there : there + count] = values[here : here + count]
    return carried


def _kind(call):
    name = call.op.name
    return "conv" if name in ALL_CONVS else _SAME.get(name, name)


def _fused_calls(mod):
    found = []

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
            found.append(expr)

    # Not into the functions: their inner calls are the functions' own.
    relay.analysis.post_order_visit(mod["main"], visit)
    return found


def _has_conv(call):
    return any(each.op.name in ALL_CONVS for each in calls_of(call.op))


def _describe(call, inner):
    output = call.checked_type
    first = output.fields[0] if isinstance(output, tvm.ir.TupleType) else output
    convs = [layout_label(each) for each in inner if each.op.name in ALL_CONVS]
    transforms = [each for each in inner if each.op.name == "layout_transform"]
    layouts = ["%s->%s" % (each.attrs.src_layout, each.attrs.dst_layout) for each in transforms]
    return {
        "shape": [int(extent) for extent in first.shape],
        "dtype": str(first.dtype),
        "transforms": ["layout_transform " + layout for layout in layouts],
        "layout": convs[-1].split("->")[-1].split(" ")[0] if convs else None,
        "bytes": sum(_bytes(argument.checked_type) for argument in call.args) + _bytes(output),
    }


def _bytes(kind):
    if isinstance(kind, tvm.ir.TupleType):
        return sum(_bytes(field) for field in kind.fields)
    size = BYTES.get(str(kind.dtype), 4)
    for extent in kind.shape:
        size *= int(extent)
    return size
