"""A module with its final layouts, lowered and built into an object file, a graph and its weights."""

import json
import os

import tvm
from tvm import relay

from .layouts import kept, stock
from .refused import Refused

OBJECT, GRAPH, PARAMS = "lib.o", "graph.json", "params.bin"


def pass_context(passes, fuse, unfused=False):
    """TVM's passes as a variant asks for them: `{"disabled": [...], "opt_level": n or None}`, 3 being relay's usual.

    Without fusion each operator is a function of its own; `unfused` leaves the graph flat, for the census.
    """
    config = {} if fuse else {"relay.FuseOps.max_depth": 1}
    disabled = list(passes["disabled"]) + (["FuseOps"] if unfused else [])
    level = 3 if passes["opt_level"] is None else passes["opt_level"]
    return tvm.transform.PassContext(opt_level=level, disabled_pass=disabled, config=config)


def hook_context(keep):
    """TVM's hook for convolutions within the build: its own, or one that keeps them all."""
    return kept() if keep else stock()


def optimise(mod, target, passes, fuse, keep):
    """The module as the build lowers it, but not fused: what the census counts."""
    with hook_context(keep), pass_context(passes, fuse, unfused=True):
        lowered, _ = relay.optimize(mod, target=target, params={})
    return relay.transform.InferType()(lowered)


def fuse_as_built(lowered, passes, fuse):
    """The module of `optimise` in functions, as the build fuses it."""
    with pass_context(passes, fuse):
        return relay.transform.InferType()(relay.transform.FuseOps()(lowered))


def build(mod, target, passes, fuse, keep, folder):
    """Build the module into OBJECT, GRAPH and PARAMS of a folder; returns the graph."""
    with hook_context(keep), pass_context(passes, fuse):
        factory = relay.build(mod, target=target, params={})
    library = factory.get_lib() if hasattr(factory, "get_lib") else factory.lib
    if library.imported_modules:
        kinds = ", ".join(sorted(set(module.type_key for module in library.imported_modules)))
        raise Refused("build", "the library has parts that are not CPU code (%s): leave them out" % kinds)
    graph = factory.get_graph_json() if hasattr(factory, "get_graph_json") else factory.get_json()
    library.save(os.path.join(folder, OBJECT))
    _write(folder, GRAPH, graph.encode())
    params = factory.get_params() if hasattr(factory, "get_params") else factory.params
    _write(folder, PARAMS, bytes(relay.save_param_dict(params)))
    return json.loads(graph)


def _write(folder, name, data):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
