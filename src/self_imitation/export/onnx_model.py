"""A policy as an ONNX model.

The package's own network is written layer by layer, which needs the package `onnx` alone. A network that a user
registered is any JAX function: jax2onnx converts it, a package with many dependencies of its own.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import Policy
from self_imitation.algorithm.normalisation import EPSILON
from self_imitation.environments.gymnasium.spaces import Spaces
from self_imitation.errors import UsageError, first_line
from self_imitation.export import outputs
from self_imitation.export.graph import BATCH, OPSET, Graph, Value, require_onnx
from self_imitation.networks.actor_critic import Body, Network
from self_imitation.types import Continuous, Discrete, MultiDiscrete, Observation, Spec


def convert(agent: Agent, policy: Policy, spaces: Spaces | None, metadata: Mapping[str, str]) -> bytes:
    """The content of an ONNX file. Its inputs are batches as `agent.spec` describes them, not normalised; its outputs
    are those of `outputs.compute`. It computes in float32.
    """
    if type(policy.params) is not Network:  # a class derived from it may compute something else
        return _converted_by_jax2onnx(agent, policy, spaces, metadata)
    graph, network = Graph(), jax.tree.map(np.asarray, policy.params)
    inputs = {name: graph.input(name, leaf.shape, leaf.dtype) for name, leaf in _inputs(agent.spec).items()}
    encoded = _encode(graph, agent, policy, inputs)
    features = _body(graph, network.policy_body, encoded)
    value_features = features if network.value_body is None else _body(graph, network.value_body, encoded)
    head = graph.linear(features, network.policy_head.weight, network.policy_head.bias)
    values = graph.linear(value_features, network.value_head.weight, network.value_head.bias)
    _add_action(graph, agent.spec, outputs.action_form(agent.spec, spaces), head)
    width = network.policy_head.bias.shape[0]
    if network.log_std is not None:
        graph.output("mean", head, [BATCH, width], np.float32)
        graph.output("log_std", graph.constant(network.log_std), [width], np.float32)
    else:
        graph.output("logits", head, [BATCH, width], np.float32)
    if network.action_values:
        graph.output("action_values", values, [BATCH, width], np.float32)
        expected = graph.add("Mul", graph.add("Softmax", head, axis=-1), values)
        value = graph.add("ReduceSum", expected, graph.constant(np.array([1])), keepdims=0)
    else:
        value = graph.reshape(values, [])
    graph.output("value", value, [BATCH], np.float32)
    return graph.model(metadata)


def _inputs(spec: Spec) -> dict[str, jax.ShapeDtypeStruct]:
    """Shape and dtype of one observation, by the names of the model's inputs."""
    return spec.observation if spec.numbers_beside_image else {"observation": spec.observation}


def _encode(graph: Graph, agent: Agent, policy: Policy, inputs: Mapping[str, Value]) -> dict[str, Value]:
    """The first layer's inputs: an image [batch, channels, height, width], numbers [batch, n], or both."""
    encoded, spec = {}, agent.spec
    if spec.observation_kind == "image":
        pixels = graph.add("Cast", inputs.get("image") or inputs["observation"], to=1)  # float32
        scaled = graph.add("Div", pixels, graph.constant(np.float32(255.0)))
        encoded["image"] = graph.add("Transpose", scaled, perm=[0, 3, 1, 2])
    if spec.observation_kind == "categories":
        encoded["numbers"] = _one_hot(graph, inputs["observation"], spec.observation_levels or ())
    elif numbers := inputs.get("numbers") or (inputs["observation"] if spec.observation_kind == "numbers" else None):
        width = spec.numbers_beside_image or int(np.prod(spec.observation_shape))
        encoded["numbers"] = graph.reshape(_normalise(graph, agent, policy, numbers), [width])
    return encoded


def _normalise(graph: Graph, agent: Agent, policy: Policy, numbers: Value) -> Value:
    if agent.normaliser is None or policy.normaliser is None or policy.normaliser.observation is None:
        return numbers
    moments = jax.tree.map(np.asarray, policy.normaliser.observation)
    shifted = graph.add("Sub", numbers, graph.constant(moments.mean))
    scaled = graph.add("Div", shifted, graph.constant(np.sqrt(moments.variance + np.float32(EPSILON))))
    clip = np.float32(agent.normaliser.clip)
    return graph.add("Clip", scaled, graph.constant(-clip), graph.constant(clip))


def _one_hot(graph: Graph, categories: Value, levels: tuple[int, ...]) -> Value:
    parts = []
    for entry, count in enumerate(levels):
        column = graph.add("Gather", categories, graph.constant(np.array([entry])), axis=1)
        equal = graph.add("Equal", column, graph.constant(np.arange(count, dtype=np.int32)))
        parts.append(graph.add("Cast", equal, to=1))  # float32
    return graph.add("Concat", *parts, axis=1)


def _body(graph: Graph, body: Body, encoded: Mapping[str, Value]) -> Value:
    activation = "Relu" if body.convolutions else "Tanh"
    parts = []
    if body.convolutions:
        x = encoded["image"]
        for convolution in body.convolutions:
            weight = graph.constant(np.transpose(convolution.weight, (3, 2, 0, 1)))
            strides = [convolution.stride] * 2
            x = graph.add(activation, graph.add("Conv", x, weight, graph.constant(convolution.bias), strides=strides))
        parts.append(graph.add("Flatten", graph.add("Transpose", x, perm=[0, 2, 3, 1]), axis=1))
    if "numbers" in encoded:
        parts.append(encoded["numbers"])
    x = parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)
    for layer in body.layers:
        x = graph.add(activation, graph.linear(x, layer.weight, layer.bias))
    return x


def _add_action(graph: Graph, spec: Spec, form: outputs.ActionForm, head: Value) -> None:
    """The most likely action, as the environment takes it."""
    match spec.actions:
        case Discrete():
            action = graph.add("ArgMax", head, axis=1, keepdims=0)
        case MultiDiscrete(counts):
            ends = [0, *itertools.accumulate(counts)]
            action = graph.add("Concat", *(_choice(graph, head, a, b) for a, b in itertools.pairwise(ends)), axis=1)
        case Continuous():
            action = graph.add("Max", graph.add("Min", head, graph.constant(form.high)), graph.constant(form.low))
    if form.start.any():
        action = graph.add("Add", action, graph.constant(form.start))
    dtype = np.float32 if isinstance(spec.actions, Continuous) else np.int64
    graph.output("action", graph.reshape(action, form.shape), [BATCH, *form.shape], dtype)


def _choice(graph: Graph, head: Value, start: int, end: int) -> Value:
    """The most likely of the choices whose logits are in these columns."""
    bounds = (graph.constant(np.array([at])) for at in (start, end, 1))
    return graph.add("ArgMax", graph.add("Slice", head, *bounds), axis=1, keepdims=1)


def _converted_by_jax2onnx(agent: Agent, policy: Policy, spaces: Spaces | None, metadata: Mapping[str, str]) -> bytes:
    onnx = require_onnx()
    try:
        from jax2onnx import to_onnx
    except ImportError:
        raise UsageError(
            "a network of your own is exported by jax2onnx, which is not installed: pip install jax2onnx"
        ) from None
    inputs = _inputs(agent.spec)

    def function(*arrays: Any) -> tuple:
        observation: Observation = dict(zip(inputs, arrays, strict=True)) if len(arrays) > 1 else arrays[0]
        return tuple(outputs.compute(agent, policy, spaces, observation).values())

    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype), agent.spec.observation)
    names = list(jax.eval_shape(lambda x: outputs.compute(agent, policy, spaces, x), one))
    shapes = [jax.ShapeDtypeStruct((BATCH, *leaf.shape), leaf.dtype) for leaf in inputs.values()]
    try:
        model = to_onnx(function, shapes, opset=OPSET, input_names=list(inputs), output_names=names)
    except Exception as error:  # whatever it does not support in the user's network
        raise UsageError(f"network: jax2onnx can't convert it: {type(error).__name__}: {first_line(error)}") from error
    onnx.helper.set_model_props(model, dict(metadata))
    return model.SerializeToString()
