"""FX graphs of ATen calls as compiled graphs: what the C++ side (csrc/graph) calls and is called by.

A graph is compiled when it is called: it is run once, node by node, on stand-ins for its arguments while the kernels
record. An op that cannot be recorded (no rule, a value needed on the host) splits the graph: what is before and after it
is compiled, the op itself runs as in eager mode. Dynamo's ``counters["tpu_islands"]`` count these ops by name, and
``counters["tpu_host_graphs"]`` the graphs that run op by op because of tensors in host memory, by the first node that
makes one.
"""

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Container, Sequence
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.fx.passes.split_module import split_module
from torch.utils._python_dispatch import _disable_current_modes

from torch_tpu import _C

_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Settings:
    """What ``torch.compile`` was asked for: no breaks, and options of XLA by name."""

    fullgraph: bool
    xla: dict[str, bool | int | float | str]


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors among a node's (fake) results."""
    items = value if isinstance(value, (tuple, list)) else [value]
    return [item for item in items if isinstance(item, torch.Tensor)]


def _stays_on_the_host(node: Node) -> bool:
    """Does the node make a tensor in host memory, or is it an argument there that is more than a number?"""
    tensors = _tensors(node.meta.get("val"))
    if node.op == "placeholder":
        return any(t.device.type != "tpu" and t.dim() > 0 for t in tensors)
    return node.op == "call_function" and any(t.device.type == "cpu" for t in tensors)


def _fold_host_constants(module: GraphModule) -> None:
    """Puts results in the place of what the graph computes in host memory from nothing but constants: a program holds them.

    What the graph returns, and what draws random numbers, is computed at each call."""
    values: dict[Node, torch.Tensor] = {}
    with _disable_current_modes(), torch.no_grad():
        for node in list(module.graph.nodes):
            if node.op == "get_attr":
                value = getattr(module, str(node.target), None)
                if isinstance(value, torch.Tensor) and value.device.type == "cpu":
                    values[node] = value
            elif _is_host_constant(node, values):
                arguments, options = map_arg((node.args, node.kwargs), values.__getitem__)
                name = f"_host_constant{len(values)}"
                module.register_buffer(name, node.target(*arguments, **options))
                with module.graph.inserting_before(node):
                    constant = module.graph.get_attr(name)
                constant.meta = node.meta
                values[constant] = getattr(module, name)
                node.replace_all_uses_with(constant)
                module.graph.erase_node(node)
    module.recompile()


def _is_host_constant(node: Node, known: Container[Node]) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        and not node.target._schema.is_mutable
        and all(argument in known for argument in node.all_input_nodes)
        and all(user.op != "output" for user in node.users)
    )


def _depends_on_values(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags


def _user_line(node: Node) -> str:
    """The last line of the user's that the node comes from: 'file.py:12'; empty if that is not known."""
    lines = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip().startswith('File "')]
    if not lines:
        return ""
    path, number = lines[-1].split('"')[1], lines[-1].split("line ")[1].split(",")[0]
    return f"{path}:{number}"


class _Replay(Interpreter):
    """Runs a graph node by node and remembers where it is."""

    node: Node | None = None

    def run_node(self, n: Node) -> Any:
        self.node = n
        return super().run_node(n)


class Compiled:
    """A graph that is called with a list of arguments, which it empties, and returns a list of outputs."""

    def __init__(self, module: GraphModule, name: str, settings: Settings) -> None:
        self.module, self.name, self.settings = module, name, settings
        self._islands: set[Node] = set()
        self._split: Callable[..., Any] | None = None
        self._stopped: Node | None = None
        self._graph = _C.graph_new(name, self._replay, settings.xla)

    def _replay(self, arguments: list[Any]) -> Sequence[Any]:
        # The graph says everything itself: modes of the caller must not change it again.
        replay = _Replay(self.module)
        replay.garbage_collect_values = True
        try:
            with torch.no_grad(), torch._C._DisableAutocast(), torch._C.DisableTorchFunction():
                outputs = replay.run(*arguments)
                return outputs if isinstance(outputs, (list, tuple)) else [outputs]
        except NotImplementedError:
            self._stopped = replay.node
            raise

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        if self._split is not None:
            return self._run_split(arguments)
        try:
            outputs: Sequence[Any] = _C.graph_call(self._graph, arguments)
            return outputs
        except NotImplementedError as error:
            node, self._stopped = self._stopped, None
            if node is None:
                raise
            # Dynamo has agreed to a size that depends on values: that is no break to it.
            if self.settings.fullgraph and not _depends_on_values(node):
                what, line = str(error).splitlines()[0], _user_line(node)  # the rest is the interpreter's
                raise NotImplementedError(
                    f"torch.compile with fullgraph=True: {what}{line and f' (at {line})'}"
                ) from None
            self._islands.add(node)
            counters["tpu_islands"][str(node.target)] += 1
            self._split = self._split_at_islands()
            return self._run_split(arguments)

    def _split_at_islands(self) -> Callable[..., Any]:
        """Everything before an island, the island and what is after it as modules of their own, in this order."""
        part = itertools.count()
        current = next(part)
        parts: dict[Node, int] = {}
        islands: set[int] = set()
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if node in self._islands:
                island = next(part)
                islands.add(island)
                parts[node], current = island, next(part)
            elif node.target is operator.getitem and parts.get(node.args[0]) in islands:  # type: ignore[call-overload]
                parts[node] = parts[node.args[0]]  # type: ignore[index]
            else:
                parts[node] = current
        parts_settings = dataclasses.replace(self.settings, fullgraph=False)
        whole = split_module(self.module, None, lambda node: parts[node], keep_original_order=True)  # type: ignore[arg-type]
        for name, child in whole.named_children():
            number = int(name.rsplit("_", 1)[1])
            if number not in islands:
                setattr(whole, name, _Part(Compiled(child, f"{self.name} part {number}", parts_settings)))  # type: ignore[arg-type]
        return whole

    def _run_split(self, arguments: list[Any]) -> Sequence[Any]:
        assert self._split is not None
        values = list(arguments)
        arguments.clear()
        with torch.no_grad(), torch._C._DisableAutocast(), torch._C.DisableTorchFunction():
            outputs: Sequence[Any] = self._split(*values)
            return outputs


class _Part(torch.nn.Module):
    """A compiled graph as a child of the split module: called with single arguments; one output comes alone."""

    def __init__(self, compiled: Compiled) -> None:
        super().__init__()
        self._compiled = compiled
        output = next(iter(reversed(compiled.module.graph.nodes)))
        self._alone = not isinstance(output.args[0], (tuple, list))

    def forward(self, *arguments: Any) -> Any:
        outputs = self._compiled(list(arguments))
        return outputs[0] if self._alone else outputs


def _compile(module: GraphModule, inputs: Sequence[Any], *, kind: str, settings: Settings) -> Callable[..., Any]:
    _fold_host_constants(module)
    if (on_host := next(filter(_stays_on_the_host, module.graph.nodes), None)) is not None:
        counters["tpu_host_graphs"][str(on_host.target)] += 1

        def call(arguments: list[Any]) -> Any:
            values = list(arguments)
            arguments.clear()
            return module(*values)
    else:
        compiled = Compiled(module, f"graph {next(_numbers)} ({kind})", settings)

        def call(arguments: list[Any]) -> Any:
            return compiled(arguments)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def compiler(settings: Settings) -> Callable[[str], Callable[..., Any]]:
    """By the kind of graph ("forward", "backward", "inference"): a compiler as AOTAutograd calls it."""
    return lambda kind: functools.partial(_compile, kind=kind, settings=settings)
