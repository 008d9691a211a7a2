"""Graphs with symbolic sizes: compiled once, right for every size."""

import gc
import math
import threading
import warnings
from collections import OrderedDict

import pytest
import sympy
import torch
import torch.nn.functional as F
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from torch_spyre._C import SpyreTensorLayout
from torch_spyre._inductor import config
from torch_spyre._inductor.compile import CompileFallbackWarning
from torch_spyre._inductor.granularity import granularity, kept_instances
from torch_spyre._inductor.kernel_ir import Access, Buffer, KernelOp, Ramp
from torch_spyre._inductor.kernel_template import plan_template, template_of
from torch_spyre._inductor.views import LinearIndex
from torch_spyre.execution.template_runner import SDSCTemplateRunner

HALF, FULL = torch.float16, torch.float32


pytestmark = pytest.mark.usefixtures("fresh_compiler")


def host(*size, seed=0):
    """Numbers that both float16 and DLFloat16 hold."""
    numbers = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return (numbers * 64).round().clamp(-255, 255) / 64


def moved(value, device="spyre"):
    if not isinstance(value, torch.Tensor):
        return value
    return (value.half() if value.is_floating_point() else value).to(device)


class Compiled:
    """A compiled function that counts its compilations and fails if a graph runs op by op."""

    def __init__(self, function, **options):
        self.function = function
        self.counter = CompileCounterWithBackend("inductor")
        self.compiled = torch.compile(function, backend=self.counter, fullgraph=True, **options)

    @property
    def compilations(self):
        return self.counter.frame_count

    def __call__(self, *args):
        with warnings.catch_warnings():
            warnings.simplefilter("error", CompileFallbackWarning)
            return self.compiled(*args)

    def check(self, *args, device="spyre"):
        """Compare with the CPU, in float32."""
        on_card = [moved(arg, device) for arg in args]
        got, want = self(*on_card), self.function(*args)
        if not isinstance(want, tuple):
            got, want = (got,), (want,)
        for ours, theirs in zip(got, want, strict=True):
            close(ours, theirs)


def close(ours, theirs):
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs
        return
    assert ours.shape == theirs.shape
    scale = theirs.float().abs().max().item() if theirs.numel() else 0
    torch.testing.assert_close(ours.cpu().float(), theirs.float(), rtol=2**-7, atol=2**-7 * scale)


def attention(q, k, v, mask):
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125 + mask, -1) @ v


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def causal(x):
    place = torch.arange(x.shape[0], device=x.device)
    return torch.where(place[:, None] >= place, x, -1.0)


CASES = {
    "pointwise": (lambda x: (x * 2 + 1).exp(), lambda n: [host(n, 130)]),
    "rows of a product": (lambda x, w: x @ w + 1, lambda n: [host(2, n, 130), host(130, 70)]),
    "the inside of a product": (lambda a, b: a @ b, lambda n: [host(3, n), host(n, 70)]),
    "softmax": (lambda x: torch.softmax(x * 2, -1), lambda n: [host(3, n)]),
    "attention": (
        attention,
        lambda n: [*(host(2, 4, n, 64, seed=i) for i in range(3)), host(n, n, seed=3)],
    ),
    "fused attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) + 1,
        lambda n: [host(2, 4, n, 64, seed=i) for i in range(3)],
    ),
    "embedding": (lambda i, w: F.embedding(i, w) * 2, lambda n: [torch.arange(n), host(100, 128)]),
    "a growing cache": (
        lambda cache, row: torch.cat([cache, row], 1) * 2,
        lambda n: [host(2, n, 64), host(2, 1, 64, seed=1)],
    ),
    "rms norm": (rms_norm, lambda n: [host(2, n, 128), host(128, seed=1)]),
    "rope": (rope, lambda n: [host(2, 4, n, 64), host(n, 32, seed=1), host(n, 32, seed=2)]),
    "merged dimensions": (lambda x: (x * 2).view(-1, x.shape[-1]) + 1, lambda n: [host(3, n, 70)]),
    "heads": (
        lambda x: (x + 1).view(2, -1, 2, 64).transpose(1, 2).contiguous() * 2,
        lambda n: [host(2, n, 128)],
    ),
    "shared heads": (
        lambda x: x[:, :, None].expand(2, 2, 3, x.shape[2], 64).reshape(2, 6, -1, 64) * 2,
        lambda n: [host(2, 2, n, 64)],
    ),
    "cut loops": (
        lambda x: (x * 2).view(x.shape[0] // 4, 4, 70).transpose(0, 1) + 1,
        lambda n: [host(4 * n, 70)],
    ),
    "mean": (lambda x: (x.mean(1), x.mean(-1)), lambda n: [host(3, n, 70)]),
    "counting": (causal, lambda n: [host(n, n)]),
    "slices": (lambda x: (x[1:] * 2 + x[:-1], x[-1] * 3), lambda n: [host(n, 70)]),
    "slices of sticks": (lambda x: x[:, 1:] * 2 + x[:, :-1], lambda n: [host(3, n)]),
    "sizes as numbers": (lambda x: (x * x.shape[0], x.shape[0] + 1), lambda n: [host(n, 70)]),
    "numbers": (lambda x, i: x * i + 0.5, lambda n: [host(n, 70), n]),
    "transposition": (lambda x: x.t().contiguous() + 1, lambda n: [host(n, 70)]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_graph_for_all_sizes(name):
    function, inputs = CASES[name]
    compiled = Compiled(function, dynamic=True)
    for n in (7, 64, 5, 66):
        compiled.check(*inputs(n))
    assert compiled.compilations == 1


def test_lengths_from_1_to_64():
    compiled = Compiled(lambda x, w: torch.softmax(x @ w, -1))
    weight = host(64, 32, seed=1)
    for n in range(1, 65):
        compiled.check(host(n, 64), weight)
    assert compiled.compilations <= 3  # one row; the second length; all others


def test_marked_dimensions():
    compiled = Compiled(rms_norm)
    weight = host(64).half().to("spyre")
    for n in (16, 8, 40, 128):
        x = host(2, n, 64)
        marked = x.half().to("spyre")
        torch._dynamo.mark_dynamic(marked, 1, min=8, max=128)
        close(compiled(marked, weight), rms_norm(x, weight.cpu().float()))
    assert compiled.compilations == 1


@settings(max_examples=12, derandomize=True)
@given(st.integers(2, 130), st.integers(2, 70), st.integers(2, 70))
def test_any_sizes(batch, rows, columns):
    global _any_sizes
    _any_sizes = _any_sizes or Compiled(
        lambda x, y: ((x @ y).sum(0) * 2, x.amax(1) - y.transpose(1, 2).amin(-1).mean()),
        dynamic=True,
    )
    _any_sizes.check(host(batch, rows, columns), host(batch, columns, rows, seed=1))
    assert _any_sizes.compilations <= 4  # sizes that are equal are one symbol


_any_sizes: Compiled | None = None


STEPS = [
    lambda x: x.relu() * 0.5 + 1,
    lambda x: x - x.amax(-1, keepdim=True),
    lambda x: x.transpose(0, 1),
    lambda x: x[:, 1:],
    lambda x: x + x[:1],
    lambda x: x.reshape(x.shape[1], x.shape[0]),
    lambda x: x.repeat(1, 2),
    lambda x: torch.cat([x, x * 0.5], 0),
    lambda x: torch.softmax(x, 0),
    lambda x: x @ x.transpose(0, 1) * 0.01,
    lambda x: F.pad(x, (2, 1)),
]


@settings(max_examples=10, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(st.sampled_from(range(len(STEPS))), min_size=2, max_size=4),
    st.sampled_from([(3, 65), (33, 70), (64, 130)]),
)
@example([6, 0], (5, 33))  # columns that begin inside of sticks are written, and then read
@example([10, 6], (3, 65))  # a loop of 2 * (n + 3) is two
def test_small_graphs(steps, size):
    def graph(x):
        for step in steps:
            x = STEPS[step](x)
        return x + 1

    torch._dynamo.reset()
    compiled = Compiled(graph, dynamic=True)
    compiled.check(host(*size))
    compiled.check(host(size[0] + 2, size[1] + 3))
    assert compiled.compilations == 1


def test_layouts_and_offsets_differ_from_call_to_call():
    compiled = Compiled(lambda x: x * 2 + 1, dynamic=True)
    for n in (70, 66):
        x = host(n, 130)
        plain = x.half().to("spyre")
        placed = SpyreTensorLayout([n, 130], [130, 1], HALF, [1, 0])
        turned = x.half().to("spyre", device_layout=placed)
        assert plain.device_tensor_layout() != turned.device_tensor_layout()
        for tensor in (plain, turned, plain[1:], plain[3:]):
            close(compiled(tensor), tensor.cpu().float() * 2 + 1)
    assert compiled.compilations <= 2  # a layout may have a graph of its own, a size may not


def test_a_number_in_a_tensor_of_the_host():
    compiled = Compiled(lambda x, scale: x * scale, dynamic=True)
    for n in (5, 66):
        x = host(n, 70)
        close(compiled(x.half().to("spyre"), torch.tensor(n, dtype=HALF)), x * n)
    assert compiled.compilations == 1


def test_mutation():
    def update(cache, row, place):
        cache[:, place : place + 1] = row * 2
        return cache.sum(1)

    compiled = Compiled(update, dynamic=True)
    for n in (5, 70):
        cache, row = host(2, n, 64), host(2, 1, 64, seed=1)
        on_card = cache.half().to("spyre")
        close(compiled(on_card, row.half().to("spyre"), 3), update(cache, row, 3))
        close(on_card, cache)


def test_gradients():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 70), nn.Tanh(), nn.Linear(70, 3))
    on_card = nn.Sequential(nn.Linear(64, 70), nn.Tanh(), nn.Linear(70, 3))
    on_card.load_state_dict(model.state_dict())
    on_card.to("spyre")
    compiled = Compiled(on_card, dynamic=True)
    for n in (5, 7, 66):
        x = host(n, 64)
        model.zero_grad()
        on_card.zero_grad()
        model(x).square().mean().backward()
        compiled(x.to("spyre")).square().mean().backward()
        for ours, theirs in zip(on_card.parameters(), model.parameters(), strict=True):
            close(ours.grad, theirs.grad)
    assert compiled.compilations == 1


def test_two_devices():
    compiled = Compiled(lambda x, w: torch.relu(x @ w), dynamic=True)
    weight = host(64, 70, seed=1)
    for device in ("spyre:0", "spyre:1"):
        for n in (5, 66):
            compiled.check(host(n, 64), weight, device=device)
    assert compiled.compilations <= 2


# --------------------------------------------------------------------------------------- templates


ROWS, COLUMNS = sympy.symbols("rows columns", integer=True, nonnegative=True)


def tensor(name, *size, dtype=HALF, **more):
    return Buffer(
        name, dtype, list(size), [math.prod(size[i:]) for i in range(1, len(size) + 1)], **more
    )


def at(buffer, offset=0, **strides):
    return Access(buffer, LinearIndex(offset, strides))


def runner_of(name, ops, *sizes, kept=1, inside=()):
    """Of a template of the ops; ``inside`` are locals of the graph."""
    for number, op in enumerate(ops):
        op.node = number
    template = template_of(ops, inside)
    numbers = sympy.lambdify(sizes, template.numbers)
    return SDSCTemplateRunner(name, numbers, template.data, kept)


def sums(rows, columns):
    """x * 2, and its sums over rows."""
    x, y, z = tensor("x", rows, columns), tensor("y", rows, columns), tensor("z", columns)
    t, two = tensor("t", rows, columns, local=True), tensor("two", constant=2)
    first, second = {"i": rows, "j": columns}, {"j": columns, "i": rows}
    each = {"i": columns, "j": 1}
    return [
        KernelOp("mul", first, [at(x, **each), at(two)], at(t, **each)),
        KernelOp("identity", first, [at(t, **each)], at(y, **each)),
        KernelOp("sum", second, [at(y, **each)], at(z, j=1)),
    ]


def test_equal_kernels_have_equal_data():
    """Whatever their graphs call buffers."""
    first, second = sums(ROWS, COLUMNS), sums(ROWS, COLUMNS)
    for number, op in enumerate(first):
        op.output.buffer.name = f"buf{number + 7}"
        op.origin = f"line {number}"
    one, other = template_of(first, ()), template_of(second, ())
    assert (one.data, one.numbers) == (other.data, other.numbers)
    assert template_of(sums(ROWS, 64), ()).data != other.data


@pytest.mark.parametrize("rows", [0, 1, 2, 65])
@pytest.mark.parametrize("columns", [0, 1, 3, 130])
def test_a_template_by_hand(rows, columns):
    runner = runner_of("sums", sums(ROWS, COLUMNS), ROWS, COLUMNS, kept=4)
    x = host(rows, columns)
    y, z = (torch.zeros(s, dtype=HALF, device="spyre") for s in [(rows, columns), (columns,)])
    runner.run(x.half().to("spyre"), y, z, rows, columns)
    close(y, x * 2)
    close(z, (x * 2).sum(0))


def test_a_template_without_sizes():
    runner = runner_of("sums", sums(3, 70))
    x = host(3, 70)
    y, z = (torch.zeros(s, dtype=HALF, device="spyre") for s in [(3, 70), (70,)])
    runner.run(x.half().to("spyre"), y, z)
    close(y, x * 2)
    close(z, (x * 2).sum(0))


def test_instances_are_kept_and_forgotten():
    runner = runner_of("sums", sums(ROWS, COLUMNS), ROWS, COLUMNS, kept=2)

    def run(rows):
        x = torch.zeros(rows, 64, dtype=HALF, device="spyre")
        runner.run(x, torch.empty_like(x), x.new_empty(64), rows, 64)
        return next(reversed(runner.instances.values()))

    first = run(3)
    assert run(3) is first
    run(4)
    assert run(3) is first  # used again, so 4 is the older one
    run(5)
    assert len(runner.instances) == 2
    assert run(3) is first
    run(6)
    run(7)
    assert run(3) is not first


def test_numbers_that_an_instance_counts_go_with_it():
    ramp = tensor("ramp", ROWS, dtype=FULL, constant=Ramp((ROWS,), (1,), 7))
    y = tensor("y", ROWS, dtype=FULL)
    op = KernelOp("identity", {"i": ROWS}, [at(ramp, i=1)], at(y, i=1))
    runner = runner_of("places", [op], ROWS)

    def allocated_after(rows):
        y = torch.empty(rows, dtype=FULL, device="spyre")
        runner.run(y, rows)
        assert torch.equal(y.cpu(), torch.arange(rows) + 7.0)
        del y
        gc.collect()
        return torch.spyre.memory_allocated()

    first = allocated_after(100_000)
    assert abs(allocated_after(100_001) - first) < 100_000
    assert allocated_after(100) < first - 300_000


def test_a_view_of_a_local_that_crosses_sticks_ends_the_kernel():
    """``(x * 2)[:, 1:] + 0`` of a buffer that only the kernel knows."""

    n = COLUMNS
    x, b, y = tensor("x", 3, n), tensor("b", 3, n, local=True), tensor("y", 3, n - 1)
    two, each = tensor("two", constant=2.0), {"i": n, "j": 1}
    ops = [
        KernelOp("mul", {"i": 3, "j": n}, [at(x, **each), at(two)], at(b, **each)),
        KernelOp("identity", {"i": 3, "j": n - 1}, [at(b, 1, **each)], at(y, i=n - 1, j=1)),
    ]
    runner = runner_of("shifted", ops, n, kept=2, inside=["b"])
    assert len(plan_template(runner.data, runner.numbers(130), {}).kernels) == 2
    x = host(3, 130)
    y = torch.zeros(3, 129, dtype=HALF, device="spyre")
    runner.run(x.half().to("spyre"), y, 130)
    close(y, x[:, 1:] * 2)


# ------------------------------------------------------------------------------------- granularity


@pytest.mark.parametrize(
    ("minimum", "maximum", "expected"),
    [
        (64, 2048, 64),  # the user's: 32 buckets
        (2, 2048, 64),  # PyTorch's own minimum says nothing
        (32, 2048, 64),  # would be 64 buckets
        (100, 2048, 64),  # does not divide
        (2, 16, 4),
        (2, 3, 3),
        (2, 37, 37),  # prime
    ],
)
def test_granularity(minimum, maximum, expected):
    assert granularity(minimum, maximum, 32, 4) == expected


@given(st.integers(2, 300), st.integers(2, 5000), st.integers(1, 64), st.integers(1, 64))
def test_granularity_divides_into_few_buckets(minimum, maximum, max_buckets, smallest):
    step = granularity(minimum, maximum, max_buckets, smallest)
    assert maximum % step == 0
    assert maximum // step <= max_buckets
    if step != minimum:
        assert step >= min(smallest, maximum)
        assert not [
            d
            for d in range(smallest, step)
            if maximum % d == 0 and maximum // d <= max_buckets
        ]  # fmt: skip


def test_room_for_instances():
    assert kept_instances([(2, None)]) == 128
    assert kept_instances([(2, 2048)]) == 2048
    assert kept_instances([(2, None), (2, 2048)]) == 4096
    with config.patch({"max_buckets": 2, "min_default_granularity": 3}):
        assert kept_instances([(2, None)]) == 6


# -------------------------------------------------------------------- instances, and who makes them


def negation(kept):
    x, y = tensor("x", ROWS, 64), tensor("y", ROWS, 64)
    op = KernelOp("neg", {"i": ROWS, "j": 64}, [at(x, i=64, j=1)], at(y, i=64, j=1))
    return runner_of("negation", [op], ROWS, kept=kept)


def negate(runner, rows):
    x = torch.ones(rows, 64, dtype=HALF, device="spyre")
    out = torch.empty_like(x)
    runner.run(x, out, rows)
    return out


def cores_of(runner):
    return {
        account.cost.cores
        for instance in runner.instances.values()
        for kernel, _ in instance.launches
        for account in kernel.accounts
    }


def test_threads_share_a_template_that_keeps_few_instances():
    """Also if another one makes room just when an instance was found."""

    class Instances(OrderedDict):
        def get(self, key, default=None):
            found = super().get(key, default)
            if found is not None and threading.current_thread() is threading.main_thread():
                others.append(threading.Thread(target=negate_all, args=([3, 4],)))
                others[-1].start()
                others[-1].join(0.5)  # it may have to wait for us
            return found

    def negate_all(sizes):
        results.extend(negate(runner, rows).cpu() for rows in sizes)

    others, results = [], []
    runner = negation(kept=2)
    runner.instances = Instances()
    for rows in (1, 2, 1, 2, 2):
        negate_all([rows])
    for thread in others:
        thread.join()
    assert len(others) >= 1
    assert len(results) == 5 + 2 * len(others)
    assert all(result.eq(-1).all() for result in results)
    assert len(runner.instances) <= 2


def test_instances_have_the_knobs_that_their_graph_was_compiled_with():
    with config.patch(sencores=4):
        runner = negation(kept=8)
    negate(runner, 256)
    assert cores_of(runner) == {4}
    thread = threading.Thread(target=negate, args=(runner, 512))
    thread.start()
    thread.join()
    assert len(runner.instances) == 2
    assert cores_of(runner) == {4}
