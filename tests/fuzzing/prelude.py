"""What the statements of a program may call. A script of a failure begins with this file."""

import ast
import threading

import torch

STREAMS = 3
FUNCTIONS: dict = {}


def numbers(shape, dtype, step, start=0):
    """On the host: small whole numbers, neighbours different; bools, or 0 to 8 without a sign."""
    size = 1
    for extent in shape:
        size *= extent
    values = torch.arange(size) * step + start
    if dtype == torch.bool:
        return (values % 5 < 2).reshape(shape)
    signed = dtype != torch.uint8
    return (values % 17 - 8 if signed else values % 9).reshape(shape).to(dtype)


def empty_in_layout(shape, dtype, device, sizes, strides, format):
    """An empty tensor; on the card in this layout."""
    if torch.device(device).type == "cpu":
        return torch.empty(shape, dtype=dtype)
    from torch_spyre._C import DataFormats, SpyreTensorLayout

    layout = SpyreTensorLayout(sizes, strides, getattr(DataFormats, format))
    return torch.empty(shape, dtype=dtype, device=device, device_layout=layout)


def function(source, device, dynamic=None):
    """`f` of this source; on the card compiled, once for each source."""
    config = torch._dynamo.config
    if config.recompile_limit < 10_000:  # every thread has settings of its own
        config.recompile_limit = config.accumulated_recompile_limit = 10_000
    key = (source, dynamic, torch.device(device).type)
    if key not in FUNCTIONS:
        scope = {"torch": torch}
        exec(source, scope)
        FUNCTIONS[key] = scope["f"]
        if torch.device(device).type == "spyre":
            FUNCTIONS[key] = torch.compile(scope["f"], fullgraph=True, dynamic=dynamic)
    return FUNCTIONS[key]


def gradients(f, *tensors):
    """Gradients of all elements of f(*tensors), weighed with small numbers, added up twice."""
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    for _ in range(2):
        result = f(*leaves)
        weights = (numbers(result.shape, torch.int64, 5) % 3 - 1).to(result.dtype)
        (result * weights.to(result.device)).sum().backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


class NoStream:
    """A stream of the CPU: everything happens at once."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def wait_stream(self, other):
        pass

    def wait_event(self, event):
        pass

    def record_event(self):
        return None


def streams_of(device):
    """The streams of a program, by number."""
    if torch.device(device).type == "cpu":
        return [NoStream() for _ in range(STREAMS)]
    return [torch.spyre.Stream(device) for _ in range(STREAMS)]


def nap(stream, seconds):
    """Keeps a stream of a card busy."""
    if not isinstance(stream, NoStream):
        with stream:
            torch.spyre._sleep(seconds)


def pinned(tensor, device):
    """A host tensor that copies to and from a card need not block for."""
    return tensor if torch.device(device).type == "cpu" else tensor.pin_memory()


def names(device, other_device):
    """What a program finds."""
    on_card = torch.device(device).type == "spyre"
    return {
        "torch": torch,
        "F": torch.nn.functional,
        "device": device,
        "other_device": other_device,
        "streams": streams_of(device),
        "numbers": numbers,
        "empty_in_layout": empty_in_layout,
        "function": lambda source, dynamic=None: function(source, device, dynamic),
        "gradients": gradients,
        "nap": nap,
        "pinned": lambda tensor: pinned(tensor, device),
        "settle": torch.spyre.synchronize if on_card else lambda: None,
    }


def difference(name, ours, cpu):
    """What is wrong with a value of the card, in words, or None."""
    if isinstance(cpu, (list, tuple)) and not isinstance(cpu, torch.Size):
        if type(ours) is not type(cpu) or len(ours) != len(cpu):
            return f"{name} is {ours!r}, on the CPU {cpu!r}"
        pairs = zip(ours, cpu, strict=True)
        found = (difference(f"{name}[{i}]", a, b) for i, (a, b) in enumerate(pairs))
        return next((text for text in found if text), None)
    if not isinstance(cpu, torch.Tensor):
        plain = isinstance(cpu, bool | int | float | str | torch.Size)
        return f"{name} is {ours!r}, on the CPU {cpu!r}" if plain and ours != cpu else None
    for what in ("dtype", "shape", "requires_grad"):
        if getattr(ours, what) != getattr(cpu, what):
            return f"{name}.{what} is {getattr(ours, what)}, on the CPU {getattr(cpu, what)}"
    # But for strides of dimensions of one element: the CPU's ops differ in them among themselves.
    places = [(t.squeeze().stride(), t.storage_offset()) for t in (ours, cpu)]
    if places[0] != places[1] and cpu.numel():
        return f"strides and offset of {name} are {places[0]}, on the CPU {places[1]}"
    host = ours.detach().cpu()
    if torch.equal(host, cpu.detach()):
        return None
    wrong = (host != cpu).nonzero().tolist()
    first = tuple(wrong[0])
    return (
        f"{name}: {len(wrong)} of {cpu.numel()} elements differ, the first at {list(first)}: "
        f"{host[first].item()}, on the CPU {cpu[first].item()}"
    )


class Difference(AssertionError):
    """The card and the CPU do not agree."""


class Sides:
    """One program on both sides: the same names, on the card (if wanted) and on the CPU."""

    def __init__(self, card=True):
        self.cpu = names("cpu", "cpu")
        self.given = set(self.cpu)
        if card:
            torch.spyre.set_downcast_warning(False)
            self.card = names("spyre:0", "spyre:1")

    def tensors(self):
        """Names that the program gave to something that can be compared."""
        return [name for name in self.cpu if name not in self.given and name[0] != "_"]

    def on_cpu(self, statement):
        """Runs a statement on the CPU alone; what it raised, or None."""
        return self._run(statement, self.cpu)

    def on_card(self, statement, raised=None):
        """Runs a statement on the card alone, which is to raise what the CPU raised: an error of
        the same class, or of one that is derived from it."""
        ours = self._run(statement, self.card)
        if not isinstance(ours, type(raised)) and not isinstance(raised, type(ours)):
            raise Difference(
                f"the card raises {type(ours).__name__}: {ours}\n"
                f"the CPU raises {type(raised).__name__}: {raised}"
            ) from (ours or raised)

    def compare(self, names=None):
        for name in self.tensors() if names is None else names:
            try:
                found = difference(name, self.card[name], self.cpu[name])
            except Exception as error:
                raise Difference(f"{name} cannot be read: {error}") from error
            if found:
                raise Difference(found)

    @staticmethod
    def _run(statement, scope):
        try:
            exec(compile(statement, "<program>", "exec"), scope)
        except Exception as error:
            return error
        return None


def statements_of(program):
    return [ast.unparse(node) for node in ast.parse(program).body]


def run_statements(statements):
    sides, lazy = Sides(), "settle()" in statements
    for statement in statements:
        sides.on_card(statement, sides.on_cpu(statement))
        if not lazy or statement == "settle()":
            sides.compare()


def run(program):
    """Runs a program on both sides, and compares all that there is after every statement; with
    several streams, where the program settles."""
    run_statements(statements_of(program))


def run_together(programs):
    """Runs programs at the same time, each in a thread of its own."""
    failures = []

    def work(statements):
        try:
            run_statements(statements)
        except BaseException as error:
            failures.append(error)

    # Two threads that parse at the same time are too much for ast.parse of CPython 3.11.
    parsed = [statements_of(program) for program in programs]
    threads = [threading.Thread(target=work, args=(statements,)) for statements in parsed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
