"""Graphs that cannot be compiled: what is said, and that they still run."""

import importlib
import pickle

import pytest
import torch
from compiling import card
from subprocesses import fresh
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._library.opaque_object import OpaqueBase, get_opaque_type_name, register_opaque_type

from torch_spyre._inductor import config
from torch_spyre._inductor.compile import CompileFallbackWarning
from torch_spyre._inductor.errors import (
    CompilerFault,
    InvalidSetting,
    RefusedByBackEnd,
    Unsupported,
    about_bundle,
    user_line,
)
from torch_spyre._inductor.op_spec import OpSpec
from torch_spyre._inductor.trace import Tracer
from torch_spyre.backend import MalformedBundle
from torch_spyre.ops import fallbacks

pytestmark = pytest.mark.usefixtures("empty_caches")


@pytest.fixture
def short_reach(monkeypatch):
    """Cores that reach no whole stick, so that nothing fits."""
    divide_work = importlib.import_module("torch_spyre._inductor.planning.divide_work")
    monkeypatch.setattr(divide_work, "SPAN_BYTES", 64)
    divide_work._asked_about.cache_clear()  # plans that know how far cores reach
    yield
    divide_work._asked_about.cache_clear()


def unsupported(x):
    return x.neg()


def refusal(function, *args, **options):
    """The error of a graph that is not to run op by op."""
    with config.patch(compile_fallback="error"), pytest.raises(Unsupported) as caught:
        torch.compile(function, **options)(*args)
    return caught.value


def test_by_default_the_graph_runs_op_by_op_and_says_why(short_reach):
    x = card(5, 70)
    with pytest.warns(CompileFallbackWarning) as caught:
        got = torch.compile(unsupported, fullgraph=True)(x)
    assert torch.equal(got.cpu(), unsupported(x).cpu())
    (warning,) = (w for w in caught if w.category is CompileFallbackWarning)
    for words in ("1 nodes", "op: neg", "float16[5, 70]", "test_compile_errors.py", "way out"):
        assert words in str(warning.message), words


@pytest.mark.parametrize("options", [{}, {"fullgraph": True}, {"backend": "inductor"}], ids=str)
def test_an_error_names_op_tensors_source_and_a_way_out(options, short_reach):
    error = refusal(unsupported, card(5, 70), **options)
    assert "a core would span" in error.what
    assert error.op == "neg"
    assert any("float16[5, 70]" in tensor for tensor in error.tensors)
    assert any("device size [2, 5, 64]" in tensor for tensor in error.tensors)
    assert "test_compile_errors.py" in error.source
    assert "return x.neg()" in error.source
    for part in (error.what, error.op, *error.tensors, error.source, "way out: ", "work on slices"):
        assert part in str(error)


def test_errors_about_nodes_of_the_graph_name_their_ops(monkeypatch):
    """Those that come up before there are ops of the card."""
    original = Tracer.emit

    def emit(self, opfunc, *args):
        if opfunc == "exp":
            raise Unsupported("the card has no op for exp")
        return original(self, opfunc, *args)

    monkeypatch.setattr(Tracer, "emit", emit)
    error = refusal(lambda x: (x + 1).exp(), card(5, 70))
    assert error.op == "aten.exp.default"
    assert [tensor.split(",")[0] for tensor in error.tensors] == [
        "buf0: float16[5",
        "buf1: float16[5",
    ]
    assert all("device size [2, 5, 64]" in tensor for tensor in error.tensors)
    assert "(x + 1).exp()" in error.source


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: x.double() + 1, "does not support dtype torch.float64"),
        (lambda x: x.to(torch.uint16), "does not support dtype torch.uint16"),
        (lambda x: x.view(1, 1, 1, 1, 1, 1, 1, 7, 65) * 2, "Unsupported tensor rank: 9"),
        (lambda x: (x * 2).view(torch.int16) + 1, "float16 numbers seen as torch.int16"),
        (lambda x: x.view(torch.int16), "float16 numbers seen as torch.int16"),
        (lambda x: (x * 2).view(torch.int16), "float16 numbers seen as torch.int16"),
    ],
)
def test_tensors_that_the_card_does_not_have(function, what):
    error = refusal(function, card(7, 65))
    assert not isinstance(error.reason, CompilerFault)
    assert what in error.what
    assert "aten." in error.op
    assert any("float16[7, 65]" in tensor for tensor in error.tensors)
    assert "test_compile_errors.py" in error.source
    assert ".cpu()" in error.hint


def test_bits_that_the_card_has_are_seen_as_another_dtype():
    for function in (lambda x: x.view(torch.int32), lambda x: (x * 2).view(torch.int32)):
        x = card(7, 65, dtype=torch.float32)
        got = torch.compile(function, fullgraph=True)(x)
        assert torch.equal(got.cpu(), function(x.cpu()))


def test_a_tensor_that_no_core_can_reach():
    error = refusal(lambda x: x.sum(1), torch.empty(3, 2**30, dtype=torch.float16, device="spyre"))
    assert "float16[3, 1073741824]" in str(error)


def test_a_size_that_comes_later_and_cannot_be_planned():
    compiled = torch.compile(lambda x: x.sum(1), dynamic=True, fullgraph=True)
    compiled(card(3, 70))
    with pytest.raises(Unsupported) as caught:
        compiled(torch.empty(3, 2**30, dtype=torch.float16, device="spyre"))
    error = caught.value
    assert "a core would span" in error.what
    assert error.op == "sum"
    assert any("float16[3, 1073741824]" in tensor for tensor in error.tensors)
    assert any("device size [16777216, 3, 64]" in tensor for tensor in error.tensors)
    assert "test_compile_errors.py" in error.source
    assert "lambda x: x.sum(1)" in error.source
    assert "CHUNK_LARGE_TENSORS" in str(error)


def test_a_size_that_the_back_end_refuses_later(monkeypatch):
    x = card(9, 70)
    compiled = torch.compile(lambda x: x.exp() * 2, dynamic=True, fullgraph=True)
    compiled(card(5, 70))

    def refuse(text, files):
        raise MalformedBundle("sdsc_0.json", "numCoresUsed_", "is 0")

    monkeypatch.setattr("torch_spyre.backend.kernel_cache.program_from", refuse)
    with pytest.raises(RefusedByBackEnd, match="numCoresUsed_") as caught:
        compiled(x)
    assert caught.value.op == "exp"
    assert "lambda x: x.exp() * 2" in caught.value.source
    assert "dynamic=False" in str(caught.value)
    monkeypatch.undo()
    assert torch.equal(compiled(x).cpu(), (x.exp() * 2).cpu())  # nothing is left of it


def test_the_error_reaches_the_user_as_it_is(short_reach):
    """Not wrapped by Dynamo, and without Dynamo's frames."""
    error = refusal(unsupported, card(5, 70))
    assert isinstance(error, RuntimeError)
    names = []
    traceback = error.__traceback__
    while traceback is not None:
        names.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    assert not any("_dynamo/convert_frame" in name for name in names)


def test_the_environment_can_ask_for_errors():
    result = fresh(
        """
        import importlib, torch
        divide_work = importlib.import_module("torch_spyre._inductor.planning.divide_work")
        divide_work.SPAN_BYTES = 64
        x = torch.ones(5, 70, dtype=torch.float16, device="spyre")
        try:
            torch.compile(lambda x: x.neg())(x)
        except RuntimeError as error:
            print(type(error).__mro__[1].__name__, error)
        """,
        TORCH_SPYRE_COMPILE_FALLBACK="error",
        TORCHINDUCTOR_FORCE_DISABLE_CACHES=1,
    )
    assert result.output.startswith("Unsupported ")
    assert "a core would span" in result.output


@pytest.mark.parametrize("cores", [0, 33, -1, 1000])
def test_a_number_of_cores_outside_of_the_card(cores):
    with config.patch(sencores=cores), pytest.raises(Unsupported) as caught:
        torch.compile(lambda x: x + 1)(card(4))
    assert f"invalid SENCORES value {cores}" in str(caught.value)


@pytest.mark.parametrize("value", ["64", "many", "0"])
def test_the_environment_names_a_number_of_cores(value):
    result = fresh(
        """
        import torch
        try:
            torch.compile(lambda x: x + 1)(torch.ones(4, device="spyre"))
        except RuntimeError as error:
            print(error)
        """,
        SENCORES=value,
    )
    assert "invalid SENCORES value" in result.output
    assert value in result.output


@pytest.mark.parametrize("cores", [1, 3, 32])
def test_any_number_of_cores_gives_the_same_numbers(cores):
    x = card(33, 200)
    with config.patch(sencores=cores):
        got = torch.compile(lambda x: (x * 2 + 1).sum(0))(x)
    assert torch.equal(got.cpu(), (x * 2 + 1).sum(0).cpu())


@pytest.mark.parametrize(
    ("knob", "value", "legal"),
    [
        ("sencores", 2.5, "a whole number from 1 to 32"),
        ("sencores", True, "a whole number from 1 to 32"),
        ("layout_solver", "nope", "default or greedy or firstfit"),
        ("max_buckets", 0, "a whole number from 1"),
        ("max_buckets", -3, "a whole number from 1"),
        ("min_default_granularity", 0, "a whole number from 1"),
        ("dxp_lx_frac_avail", 1.5, "a number from 0 to 1"),
        ("lx_planning", "maybe", "True or False"),
    ],
)
def test_a_knob_with_a_value_without_a_meaning(knob, value, legal):
    with config.patch({knob: value}), pytest.raises(Unsupported) as caught:
        torch.compile(lambda x: x + 1)(card(4))
    assert isinstance(caught.value.reason, InvalidSetting)
    assert repr(value) in caught.value.what
    assert knob in caught.value.what.lower()
    assert legal in caught.value.hint


def test_a_switch_that_is_neither_on_nor_off():
    result = fresh(
        """
        import torch
        try:
            torch.compile(lambda x: x + 1)(torch.ones(4, device="spyre"))
        except RuntimeError as error:
            print(error)
        """,
        LX_PLANNING="maybe",
    )
    assert "invalid LX_PLANNING value 'maybe'" in result.output
    assert "one of 1, true, yes, on, or of 0, false, no, off" in result.output


def test_a_fallback_that_is_neither_warn_nor_error():
    with config.patch(compile_fallback="maybe"), pytest.raises(Unsupported, match="maybe"):
        torch.compile(lambda x: x + 1)(card(4))


# ------------------------------------------------------------------------------- faults of our own


def test_a_fault_of_the_compiler_is_one_of_these_errors_too(monkeypatch):
    from torch_spyre._inductor import scheduling

    def broken(*args):
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(scheduling, "plan_kernels", broken)
    error = refusal(lambda x: x + 1, card(5))
    assert isinstance(error.reason, CompilerFault)
    assert "nobody thought of this" in str(error)
    assert "report" in str(error)
    torch._dynamo.reset()
    with pytest.warns(CompileFallbackWarning, match="nobody thought of this"):
        got = torch.compile(lambda x: x + 1)(card(5))
    assert torch.equal(got.cpu(), (card(5) + 1).cpu())


def test_what_the_back_end_refuses_is_one_of_these_errors_too(monkeypatch):
    from torch_spyre.backend import compiler, kernel_cache

    def refuse(bundle):
        raise MalformedBundle("bundle/sdsc_1.json", "N_.out_", "made up")

    kernel_cache.forget()
    monkeypatch.setattr(compiler, "check", refuse)
    error = refusal(lambda x: (x.exp() * 3.25).sum(0), card(7, 70))
    assert isinstance(error.reason, RefusedByBackEnd)
    assert error.op == "mul"  # of sdsc_1.json
    assert "made up" in str(error)
    assert "test_compile_errors.py" in error.source
    assert any("device size" in tensor for tensor in error.tensors)


def test_a_refusal_without_a_file_names_the_kernel():
    with pytest.raises(RefusedByBackEnd) as caught, about_bundle("sdsc_fused_add_0", []):
        raise MalformedBundle("bundle/bundle.mlir", "line 3", "made up")
    assert caught.value.op == "sdsc_fused_add_0"
    assert isinstance(caught.value.__cause__, MalformedBundle)


# ------------------------------------------------------------------------------------ assertions


def test_an_assertion_inside_of_a_graph_is_checked():
    with fallbacks.refused():
        one_hot = torch.compile(torch.nn.functional.one_hot, fullgraph=True, dynamic=False)
        classes = torch.tensor([0, 2, 1], dtype=torch.int64)
        assert torch.equal(one_hot(classes.to("spyre"), 3).cpu(), torch.eye(3)[classes].long())
        with pytest.raises(RuntimeError, match="smaller than num_classes"):
            one_hot((classes + 1).to("spyre"), 3)


@pytest.mark.parametrize("message", ["too large", None])
def test_assertions_in_eager(message):
    x = torch.ones(2, device="spyre")
    said = () if message is None else (message,)
    with fallbacks.refused():
        torch._assert_async((x < 2).all(), *said)
        with pytest.raises(RuntimeError, match=message or "nonzero value"):
            torch._assert_async((x > 1).all(), *said)


# ------------------------------------------------------------------------------------ the class


def test_what_is_known_first_stays():
    error = Unsupported("no", op="exp")
    error.add("kernel", ["x: float16[3]"], "a.py:3")
    assert (error.op, error.tensors, error.source) == ("exp", ["x: float16[3]"], "a.py:3")
    assert str(error).splitlines() == [
        "no",
        "  op: exp",
        "  tensor: x: float16[3]",
        "  source: a.py:3",
        f"  way out: {str(error).split('way out: ')[1]}",
    ]


def test_a_hint_replaces_the_general_way_out():
    assert "way out: wait" in str(Unsupported("no", hint="wait"))


def test_an_op_says_what_it_is():
    error = Unsupported("no", op=OpSpec("exp", False, {}, []))
    assert error.op == "exp"


def test_errors_travel_between_processes():
    error = pickle.loads(pickle.dumps(Unsupported("no", op="exp", hint="wait")))
    assert str(error) == str(Unsupported("no", op="exp", hint="wait"))


def test_the_line_of_a_stack_trace():
    trace = '  File "a.py", line 1, in f\n    g(x)\n  File "b.py", line 7, in g\n    return x + 1\n'
    assert user_line(trace) == 'File "b.py", line 7, in g: return x + 1'
    assert user_line("  elsewhere ") == "elsewhere"
    assert user_line("") == ""


# ----------------------------------------------------------------------------------- caches, inputs


class Box(OpaqueBase):
    """Something that is no tensor, and on no device."""

    def __init__(self, number):
        self.number = number


@pytest.fixture(scope="module")
def boxes():
    """An op that takes a box."""
    register_opaque_type(Box, typ="reference")
    library = torch.library.Library("spyre_test_boxes", "DEF")
    library.define(f"add(Tensor x, {get_opaque_type_name(Box)} box) -> Tensor")
    library.impl("add", lambda x, box: x + box.number, "CompositeExplicitAutograd")
    torch.library.register_fake("spyre_test_boxes::add", lambda x, box: torch.empty_like(x))
    yield torch.ops.spyre_test_boxes
    library._destroy()


def test_an_input_may_have_no_device(boxes):
    x, box = card(5, 70), Box(2)
    with config.patch(compile_fallback="error"):
        got = torch.compile(lambda x, box: boxes.add(x, box).neg(), fullgraph=True)(x, box)
    assert torch.equal(got.cpu(), (x + 2).neg().cpu())


def test_a_graph_with_an_input_of_no_device_runs_op_by_op(boxes, short_reach):
    x, box = card(5, 70), Box(2)
    with pytest.warns(CompileFallbackWarning, match="a core would span"):
        got = torch.compile(lambda x, box: boxes.add(x, box).neg(), fullgraph=True)(x, box)
    assert torch.equal(got.cpu(), (x + 2).neg().cpu())


@pytest.mark.parametrize("bundled", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_op_by_op_with_a_cache_of_graphs(bundled, requires_grad, short_reach):
    """Cold, and warm: from AOTAutograd's cache, which keeps such a graph if it keeps all of one."""

    def function(x):
        return x.neg() * 2

    want = function(card(5, 70)).cpu()
    for hits in (0, int(bundled)):
        torch._dynamo.reset()
        counters.clear()
        x = card(5, 70).requires_grad_(requires_grad)
        with functorch_config.patch(bundled_autograd_cache=bundled):
            with pytest.warns(CompileFallbackWarning, match="a core would span"):
                got = torch.compile(function, fullgraph=True)(x)
            if requires_grad:
                got.sum().backward()
                assert x.grad.cpu().eq(-2).all()
        assert torch.equal(got.detach().cpu(), want)
        assert counters["aot_autograd"]["autograd_cache_hit"] == hits
        assert sum(counters["spyre_op_by_op"].values()) >= 1
