"""Binding the dynamic batch of a .tflite file, in a copy of it.

A dimension that is dynamic stands in a tensor's `shape_signature` as -1 and in its `shape` as 1. Both are written
over in place: the flatbuffer keeps its size, and TFLite and TVM read the same fixed shapes.
"""

from __future__ import annotations

import struct
from typing import Any

from layoutlab.errors import ModelError

# Fields of the schema's Tensor table, as offsets into its vtable: shape is its first field, shape_signature its eighth.
_SHAPE, _SHAPE_SIGNATURE = 4, 18


def bind_batch(data: bytes, batch: int) -> bytes:
    """The model with every dynamic first dimension set to `batch`.

    Raises ModelError when no first dimension is dynamic, and when the file cannot be parsed. Other dynamic
    dimensions are left as they are.
    """
    import tflite

    bound = bytearray(data)
    try:
        graph = tflite.Model.GetRootAs(data, 0).Subgraphs(0)
        count = sum(_bind(bound, graph.Tensors(index), batch) for index in range(graph.TensorsLength()))
    except Exception as error:
        raise ModelError(f"binding the batch: the file is malformed ({type(error).__name__}: {error})") from error
    if not count:
        raise ModelError(f"the spec says model.batch: {batch}, but the model's batch is not dynamic; leave it out")
    return bytes(bound)


def _bind(bound: bytearray, tensor: Any, batch: int) -> bool:
    """Write the batch into one tensor's shape and signature; whether it was dynamic."""
    if not tensor.ShapeSignatureLength() or tensor.ShapeSignature(0) != -1:
        return False
    for field in (_SHAPE, _SHAPE_SIGNATURE):
        table = tensor._tab
        start = table.Vector(table.Offset(field))
        struct.pack_into("<i", bound, start, batch)
    return True
