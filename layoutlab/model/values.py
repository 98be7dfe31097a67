"""Values of tensors within a model, as LiteRT's own kernels compute them. For worker processes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layoutlab.errors import ModelError
from layoutlab.model.cut import Cut


def tensor_values(
    model: bytes, input_sets: Sequence[Sequence[np.ndarray]], tensors: Sequence[int]
) -> list[list[np.ndarray]]:
    """The values of the tensors of these numbers, for each set of the model's inputs.

    XNNPACK is left out: it keeps what lies between its operators to itself.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=model,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    found = []
    for inputs in input_sets:
        for detail, value in zip(details, inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        found.append([interpreter.get_tensor(tensor) for tensor in tensors])
    return found


def cut_values(
    model: bytes, cut: Cut, input_sets: Sequence[Sequence[np.ndarray]]
) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
    """What the cut model's inputs and outputs are within the whole model, for each set of the whole model's inputs.

    Raises ModelError when the cut model does not compute these outputs from these inputs, bit by bit.
    """
    values = tensor_values(model, input_sets, [*cut.inputs, *cut.outputs])
    count = len(cut.inputs)
    inputs, outputs = [found[:count] for found in values], [found[count:] for found in values]
    alone = tensor_values(cut.data, inputs, _output_tensors(cut))
    for number, (got, wanted) in enumerate(zip(alone, outputs, strict=True)):
        for position, (a, b) in enumerate(zip(got, wanted, strict=True)):
            if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
                raise ModelError(
                    f"ops {', '.join(map(str, cut.ops))} alone do not compute what they compute in the model: output "
                    f"{position} of input set {number} differs. Measure them within the model"
                )
    return inputs, outputs


def _output_tensors(cut: Cut) -> list[int]:
    import tflite

    graph = tflite.Model.GetRootAs(cut.data, 0).Subgraphs(0)
    return [int(graph.Outputs(position)) for position in range(graph.OutputsLength())]
