"""An ONNX graph that grows node by node."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from self_imitation.errors import UsageError

OPSET, IR_VERSION = 17, 8
"""Of 2022, which the runtimes in use read."""
BATCH = "batch"
"""Name of the dynamic dimension."""

Value: TypeAlias = str
"""Name of a tensor of the graph."""


def require_onnx() -> Any:
    """The package `onnx`."""
    try:
        import onnx
    except ImportError:
        raise UsageError("ONNX models need a package: pip install 'self-imitation[onnx]'") from None
    return onnx


class Graph:
    """Every method that adds something returns the name of the tensor that it makes."""

    def __init__(self) -> None:
        self._onnx = require_onnx()
        self._names = itertools.count()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, shape: Sequence[int], dtype: type) -> Value:
        """A batch of arrays of this shape."""
        self._inputs.append(self._description(name, [BATCH, *shape], dtype))
        return name

    def constant(self, array: Any) -> Value:
        name = f"constant_{next(self._names)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def add(self, operator: str, *inputs: Value, **attributes: object) -> Value:
        name = f"{operator.lower()}_{next(self._names)}"
        self._nodes.append(self._onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def linear(self, x: Value, weight: Any, bias: Any) -> Value:
        """`x @ weight + bias`."""
        return self.add("Gemm", x, self.constant(weight), self.constant(bias))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """`[batch, *shape]`."""
        return self.add("Reshape", x, self.constant(np.array([0, *shape], np.int64)))  # 0: as it is

    def output(self, name: str, value: Value, shape: Sequence[str | int], dtype: type) -> None:
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._description(name, list(shape), dtype))

    def model(self, metadata: Mapping[str, str]) -> bytes:
        """The model as a file's content, checked."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "policy", self._inputs, self._outputs, self._constants)
        opset = helper.make_opsetid("", OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="self-imitation")
        helper.set_model_props(model, dict(metadata))
        self._onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()

    def _description(self, name: str, shape: list[Any], dtype: type) -> Any:
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self._onnx.helper.make_tensor_value_info(name, kind, shape)
