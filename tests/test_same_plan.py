"""The same graph gives the same plan: in any process, whatever was planned before."""

import functools
import hashlib
import inspect
import itertools
import json
import random
import sys
import threading
from pathlib import Path

import pytest
import torch
from kernel_ops import FULL, HALF, A, B, C, D, at, buffer, bundle_of, local, op, softmax_ops
from subprocesses import fresh

from torch_spyre._inductor import config
from torch_spyre._inductor.planning import divide_work, plan_kernel
from torch_spyre._inductor.planning.accesses import MATMUL
from torch_spyre._inductor.planning.footprints import OpShape, Structure
from torch_spyre.backend.compiler import compile_files


def attention(batch=2, rows=128, depth=64):
    q, k, v, out = (buffer(name, batch, rows, depth) for name in ("q", "k", "v", "out"))
    scores, shifted, powers, weights = (
        local(name, batch, rows, rows, dtype=FULL) for name in ("s", "d", "e", "w")
    )
    most, total = local("m", batch, rows, dtype=FULL), local("t", batch, rows, dtype=FULL)
    space = {A: batch, B: rows, C: rows}
    product = {A: batch, B: rows, D: rows, C: depth}
    return [
        op(MATMUL, product, [at(q, A, B, C), at(k, A, D, C)], at(scores, A, B, D)),
        op("max", space, [at(scores, A, B, C)], at(most, A, B)),
        op("sub", space, [at(scores, A, B, C), at(most, A, B)], at(shifted, A, B, C)),
        op("exp", space, [at(shifted, A, B, C)], at(powers, A, B, C)),
        op("sum", space, [at(powers, A, B, C)], at(total, A, B)),
        op("realdiv", space, [at(powers, A, B, C), at(total, A, B)], at(weights, A, B, C)),
        op(
            MATMUL,
            {A: batch, B: rows, D: depth, C: rows},
            [at(weights, A, B, C), at(v, A, C, D)],
            at(out, A, B, D),
        ),
    ]


def chain(rows, columns, length, stick=None):
    """Sums of all that came before, and of the input turned: many ways to agree or not."""
    x, out = buffer("x", rows, columns, stick=stick), buffer("out", rows, columns)
    values = [x]
    ops = []
    for i in range(length):
        made = out if i == length - 1 else local(f"t{i}", rows, columns)
        inputs = [at(values[-1], A, B), at(values[-2 if i % 3 else 0 : None][0], A, B)]
        ops.append(
            op(("add", "mul", "maximum")[i % 3], {A: rows, B: columns}, inputs, at(made, A, B))
        )
        values.append(made)
    return ops


def mlp(rows=96, width=256, inner=512):
    x, up, down, out = (
        buffer("x", rows, width),
        buffer("up", width, inner),
        buffer("down", inner, width),
        buffer("out", rows, width),
    )
    hidden, active = local("h", rows, inner), local("a", rows, inner)
    return [
        op(MATMUL, {A: rows, C: inner, B: width}, [at(x, A, B), at(up, B, C)], at(hidden, A, C)),
        op("exp", {A: rows, B: inner}, [at(hidden, A, B)], at(active, A, B)),
        op(
            MATMUL, {A: rows, C: width, B: inner}, [at(active, A, B), at(down, B, C)], at(out, A, C)
        ),
    ]


KERNELS = {
    "softmax": lambda: softmax_ops(128, 1024),
    "large softmax": lambda: softmax_ops(8192, 8192, inside=FULL),
    "other softmax": lambda: softmax_ops(1024, 128, dtype=FULL, inside=FULL),
    "attention": attention,
    "longer attention": lambda: attention(4, 320, 128),
    "mlp": mlp,
    "chain": lambda: chain(256, 192, 9),
    "turned chain": lambda: chain(256, 192, 9, stick=0),
}


def plan(name):
    """A bundle and its program, as a digest."""
    files = bundle_of(plan_kernel(KERNELS[name]()))
    text = files.mlir + json.dumps(files.superdscs)
    return hashlib.sha256(text.encode() + compile_files(files)).hexdigest()


def forget_all():
    """Every cache of ours, as in a new process."""
    for function in caches():
        function.cache_clear()


def caches():
    """The functions of the compiler and the back end that remember what they returned."""
    modules = [m for n, m in sorted(sys.modules.items()) if n.startswith("torch_spyre.")]
    places = [*modules, *(v for m in modules for v in vars(m).values() if inspect.isclass(v))]
    found = {id(v): v for place in places for v in vars(place).values() if hasattr(v, "cache_info")}
    return [v for v in found.values() if v.__module__.startswith("torch_spyre.")]


@pytest.fixture(scope="module")
def alone():
    """The plans of a process that has planned nothing else."""
    plans = {}
    for name in KERNELS:
        forget_all()
        plans[name] = plan(name)
    return plans


def test_history_does_not_matter(alone):
    orders = [list(KERNELS), list(KERNELS)[::-1], random.Random(1).sample(list(KERNELS), 8)]
    for order in orders:
        for name in order:
            assert plan(name) == alone[name], (order, name)


@pytest.mark.parametrize("kept", [1, 16])
def test_what_was_forgotten_meanwhile_does_not_matter(kept, alone, monkeypatch):
    """Caches that keep next to nothing, wherever they are called from."""
    small = {id(c): functools.lru_cache(maxsize=kept)(c.__wrapped__) for c in caches()}
    modules = [m for n, m in sys.modules.items() if n.startswith("torch_spyre.")]
    for module in modules:
        for name, value in list(vars(module).items()):
            if id(value) in small:
                monkeypatch.setattr(module, name, small[id(value)])
    assert divide_work._asked_about.cache_info().maxsize == kept
    for name in [*KERNELS, *reversed(KERNELS)]:
        assert plan(name) == alone[name]


def test_where_objects_lie_does_not_matter(alone):
    """Sets of buffers and ops go round in the order of addresses."""
    kept = []
    for i in range(6):
        kept.append([bytearray(37 * i + 1) for _ in range(1000 * i)])
        for name in ("chain", "attention", "softmax"):
            kept.append(KERNELS[name]())  # other addresses for the next
            assert plan(name) == alone[name]


def test_threads_get_the_same_plans(alone):
    forget_all()
    failed = []

    def work(names):
        failed.extend(name for name in names if plan(name) != alone[name])

    orders = itertools.islice(itertools.permutations(["mlp", "attention", "chain"]), 4)
    threads = [threading.Thread(target=work, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


HASHES = """
    import json, sys, torch
    from torch._inductor.utils import run_and_get_code
    sys.path.insert(0, {tests!r})
    import test_same_plan

    plans = {{name: test_same_plan.plan(name) for name in {names!r}}}
    print(json.dumps([plans, test_same_plan.code()]))
"""


def viewed(x):
    """Loops that views cut in several places."""
    y = x.reshape(4, 6, 10, 64).permute(2, 0, 3, 1).reshape(40, 384)
    return torch.softmax(y + x.reshape(40, 384), -1).reshape(20, 2, 12, 32).transpose(1, 2)


def code():
    """What is generated for a graph."""
    from torch._inductor.utils import run_and_get_code

    x = torch.arange(40 * 384.0, dtype=HALF).reshape(240, 64).to("spyre")
    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        _, (text,) = run_and_get_code(torch.compile(viewed), x)
    lines = [line.split("#")[0].rstrip() for line in text.splitlines()]
    kernels = "\n".join(lines[lines.index("async_compile = AsyncCompile()") :])
    return hashlib.sha256(kernels.partition("sources=")[0].encode()).hexdigest()


def test_hashes_of_texts_do_not_matter(alone, tmp_path):
    names = ["softmax", "attention", "turned chain"]
    snippet = HASHES.format(tests=str(Path(__file__).parent), names=names)
    plans, generated = fresh(
        snippet, timeout=240, PYTHONHASHSEED=1, TORCHINDUCTOR_CACHE_DIR=tmp_path
    ).value
    assert plans == {name: alone[name] for name in names}
    assert generated == code()


# --------------------------------------------------------------------- what plans are remembered by


def test_a_structure_is_all_that_a_shape_depends_on():
    """Shapes are made of ops that have nothing else."""
    for make in KERNELS.values():
        for each in plan_ops(make()):
            structure = Structure.of(each)
            made, given = OpShape(structure.op()), OpShape(each)
            assert Structure.of(structure.op()) == structure
            assert (made.units, made.sticks, made.reduced) == (
                given.units,
                given.sticks,
                given.reduced,
            )
            ours, theirs = made.footprints(each.splits), given.footprints(each.splits)
            assert [f._replace(cohort=None) for f in ours] == [
                f._replace(cohort=None) for f in theirs
            ]


def plan_ops(ops):
    """The ops as they are before their loops are split."""
    from torch_spyre._inductor.planning import settle

    return divide_work.divide_work(settle(ops))


def test_parts_of_structures_do_not_run_into_each_other():
    """Loops, and loops of those who have an input, are two things."""
    x, y = buffer("x", 64), buffer("y", 64)
    one = op("identity", {A: 64, B: 2}, [at(x, A)], at(y, A))
    other = op("identity", {B: 2}, [at(x, A)], at(y, A), held={A: 64})
    assert Structure.of(one) != Structure.of(other)


def test_cores_are_part_of_the_key(alone):
    for cores in (4, 32, 4):
        with config.patch(sencores=cores):
            assert (plan("mlp") == alone["mlp"]) == (cores == 32)
