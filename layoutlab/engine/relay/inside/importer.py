"""A .tflite file as Relay, by Relay's own TFLite frontend."""

import tflite
from tvm import relay
from tvm.relay.build_module import bind_params_by_name

from .refused import Refused

_TYPES = {
    tflite.TensorType.FLOAT32: "float32",
    tflite.TensorType.FLOAT16: "float16",
    tflite.TensorType.INT32: "int32",
    tflite.TensorType.UINT8: "uint8",
    tflite.TensorType.INT64: "int64",
    tflite.TensorType.BOOL: "bool",
    tflite.TensorType.INT16: "int16",
    tflite.TensorType.INT8: "int8",
}


def import_model(path):
    """(module, names of the inputs in the model's order); the module's weights are constants of `main`.

    Raises Refused with what the frontend says when it does not take the model.
    """
    with open(path, "rb") as file:
        data = file.read()
    model = tflite.Model.GetRootAsModel(data, 0)
    shapes, types = _inputs(model)
    try:
        mod, params = relay.frontend.from_tflite(model, shape_dict=shapes, dtype_dict=types)
    except Exception as error:
        from .__main__ import first_message

        said = "%s: %s" % (type(error).__name__, first_message(error))
        raise Refused("import", "Relay's TFLite frontend does not take this model: " + said)
    mod["main"] = bind_params_by_name(mod["main"], params)
    return relay.transform.InferType()(mod), list(shapes)


def _inputs(model):
    graph = model.Subgraphs(0)
    shapes, types = {}, {}
    for index in range(graph.InputsLength()):
        tensor = graph.Tensors(graph.Inputs(index))
        name = tensor.Name().decode()
        shapes[name] = tuple(int(tensor.Shape(axis)) for axis in range(tensor.ShapeLength()))
        types[name] = _TYPES[tensor.Type()]
    return shapes, types


def module_text(mod):
    """Relay text without the values of weights."""
    return mod.astext(show_meta_data=False)
