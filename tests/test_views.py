"""Views: new sizes and strides over the same memory, no copy. And view(dtype)."""

import math

import oracle
import pytest
import torch
from device_tensors import counting
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.usefixtures("no_downcast_warning")

VIEWS = {
    "alias": lambda x: torch.ops.aten.alias(x),
    "as_strided": lambda x: x.as_strided((3, 20), (65, 2), 7),
    "as_strided overlapping": lambda x: x.as_strided((5, 4), (3, 2), 60),
    "broadcast_to": lambda x: x[:, :1].broadcast_to(4, 3, 65),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "data": lambda x: x.data,
    "detach": lambda x: x.detach(),
    "diagonal": lambda x: x.diagonal(1),
    "diagonal of inner dims": lambda x: x.view(4, 5, 39).diagonal(-1, 1, 2),
    "dsplit": lambda x: x.view(4, 5, 39).dsplit([10, 20])[1],
    "expand": lambda x: x.expand(2, -1, 3, 65),
    "expand_as": lambda x: x[0, 0].expand_as(x),
    "flatten": lambda x: x.flatten(),
    "flatten some dims": lambda x: x.flatten(1),
    "getitem": lambda x: x[1:3, 1, 5:60:3],
    "getitem with ellipsis and None": lambda x: x[..., None, 3],
    "H": lambda x: x[0].H,
    "hsplit": lambda x: x.hsplit(3)[2],
    "mT": lambda x: x.mT,
    "mH": lambda x: x.mH,
    "movedim": lambda x: x.movedim(0, 2),
    "moveaxis": lambda x: x.moveaxis((0, 1), (2, 0)),
    "narrow": lambda x: x.narrow(2, 30, 35),
    "permute": lambda x: x.permute(2, 0, 1),
    "ravel": lambda x: x.ravel(),
    "reshape": lambda x: x.reshape(12, 65),
    "reshape_as": lambda x: x.reshape_as(torch.empty(6, 130, device="meta")),
    "select": lambda x: x.select(1, 2),
    "slice": lambda x: x[:, 1:],
    "slice with step": lambda x: x[::2, :, 1::3],
    "slice inside a stick": lambda x: x[1:2, 1:2, 63:65],
    "split": lambda x: x.split(30, 2)[1],
    "split in given sizes": lambda x: x.split([1, 60, 4], 2)[1],
    "squeeze": lambda x: x[:, :1].squeeze(),
    "squeeze a dim": lambda x: x[:, :1].squeeze(1),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "swapdims": lambda x: x.swapdims(1, 2),
    "t": lambda x: x[1].t(),
    "T": lambda x: x[:, 0].T,
    "tensor_split": lambda x: x.tensor_split(2, 2)[1],
    "transpose": lambda x: x.transpose(0, 1),
    "unbind": lambda x: x.unbind(1)[2],
    "unflatten": lambda x: x.unflatten(2, (5, 13)),
    "unfold": lambda x: x.unfold(2, 10, 7),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "view": lambda x: x.view(4, -1),
    "view of a dim split in two": lambda x: x.view(4, 3, 13, 5),
    "view_as": lambda x: x.view_as(torch.empty(195, 4, device="meta")),
    "vsplit": lambda x: x.vsplit(2)[1],
    "scalar": lambda x: x[3, 2, 64],
    "nothing": lambda x: x[:, 3:],
}


def allocations_so_far():
    return torch.spyre.memory_stats()["num_device_alloc"]


def host():
    return counting(4, 3, 65)


@pytest.fixture
def base():
    return host().to("spyre")


@pytest.fixture(params=VIEWS)
def view(request):
    return VIEWS[request.param]


# ------------------------------------------------------------------------------------- every view


def test_view_shares_the_storage_of_its_base(view, base):
    viewed = view(base)
    assert viewed.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert viewed.untyped_storage()._cdata == base.untyped_storage()._cdata


def test_view_has_the_geometry_it_has_on_the_cpu(view, base):
    viewed, expected = view(base), view(host())
    assert viewed.shape == expected.shape
    assert viewed.stride() == expected.stride()
    assert viewed.storage_offset() == expected.storage_offset()
    assert viewed.is_contiguous() == expected.is_contiguous()
    assert viewed.dtype == expected.dtype


def test_view_takes_no_memory_and_does_no_work(view, base):
    torch.spyre.synchronize()
    allocations, before = allocations_so_far(), torch.spyre.counters()
    viewed = view(base)
    assert torch.spyre.counters() == before
    assert allocations_so_far() == allocations
    del viewed


def test_view_has_the_content_it_has_on_the_cpu(view, base):
    assert torch.equal(view(base).cpu(), view(host()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, torch.int64, torch.bool])
def test_view_has_its_content_in_any_format(view, dtype):
    values = (host() % 7).to(dtype)
    assert torch.equal(view(values.to("spyre")).cpu(), view(values))


def test_clone_of_a_view_has_its_content(view, base):
    clone = view(base).clone()
    assert torch.equal(clone.cpu(), view(host()))
    assert clone.numel() == 0 or clone.data_ptr() != base.data_ptr()


OVERLAPPING = ("as_strided overlapping", "broadcast_to", "expand", "expand_as", "unfold")


@pytest.mark.parametrize("name", [name for name in VIEWS if name not in OVERLAPPING])
def test_write_through_a_view_is_seen_by_the_base(name, base):
    expected = host()
    VIEWS[name](expected).fill_(-1)
    VIEWS[name](base).fill_(-1)
    assert torch.equal(base.cpu(), expected)


@pytest.mark.parametrize("name", [name for name in VIEWS if name not in OVERLAPPING])
def test_copy_into_a_view_is_seen_by_the_base(name, base):
    expected = host()
    values = torch.randn(VIEWS[name](expected).shape)
    VIEWS[name](expected).copy_(values)
    VIEWS[name](base).copy_(values)
    assert torch.equal(base.cpu(), expected)


def test_write_to_the_base_is_seen_by_a_view(view, base):
    viewed = view(base)
    base.copy_(-host())
    assert torch.equal(viewed.cpu(), view(-host()))


def test_view_keeps_memory_alive():
    viewed = host().to("spyre")[1]
    torch.full((4, 3, 65), -1.0, device="spyre")
    assert torch.equal(viewed.cpu(), host()[1])


def test_memory_is_freed_with_the_last_view():
    before = torch.spyre.memory_allocated()
    x = host().to("spyre")
    views = [x[0], x.mT, x.view(-1)]
    del x
    assert torch.spyre.memory_allocated() > before
    views.clear()
    assert torch.spyre.memory_allocated() == before


def test_view_remembers_its_base(base):
    base.requires_grad_()
    viewed = base.view(-1)
    assert viewed._is_view()
    assert viewed._base is base


@pytest.mark.parametrize("name", ["positive", "real", "contiguous", "resolve_conj", "resolve_neg"])
def test_operation_without_effect_gives_the_tensor_itself(name, base):
    result = getattr(base, name)
    assert (result() if callable(result) else result).is_set_to(base)


def test_in_place_write_through_a_view_counts_as_a_change_of_the_base(base):
    version = base._version
    base[0].fill_(1)
    assert base._version == version + 1


@pytest.mark.parametrize("rank", range(9))
def test_views_of_tensors_of_any_rank(rank):
    values = torch.arange(2.0**rank).view([2] * rank)
    x = values.to("spyre")
    backwards = tuple(reversed(range(rank)))
    assert torch.equal(x.permute(backwards).cpu(), values.permute(backwards))
    assert torch.equal(x.unsqueeze(0).cpu(), values.unsqueeze(0))
    assert torch.equal(x.flatten().cpu(), values.flatten())


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
def test_views_of_empty_tensors(shape):
    x = torch.empty(shape, device="spyre")
    assert x.view(-1).shape == (0,)
    assert x.movedim(0, -1).cpu().shape == (*shape[1:], shape[0])
    assert x.unsqueeze(0).shape == (1, *shape)
    assert x.reshape(0, 7).cpu().shape == (0, 7)


@pytest.mark.parametrize("size", [(2000,), (8, 3, 65), (50,), (4, 3, 70)])
def test_views_survive_when_their_base_is_resized(size, base):
    views = {name: make(base) for name, make in VIEWS.items()}
    base.resize_(size)
    for name, viewed in views.items():
        assert torch.equal(viewed.cpu(), VIEWS[name](host())), name


# ----------------------------------------------------------------------------- views that copy


def test_reshape_copies_only_if_it_must(base):
    assert base.reshape(12, 65).data_ptr() == base.data_ptr()
    copied = base.mT.reshape(-1)
    assert copied.data_ptr() != base.data_ptr()
    assert torch.equal(copied.cpu(), host().mT.reshape(-1))


def test_contiguous_of_a_contiguous_tensor_is_itself(base):
    assert base.contiguous() is base


@pytest.mark.parametrize("dims", [(0,), (2,), (0, 2)])
def test_tensor_cut_up_and_stacked_again_on_the_host_is_the_same(dims, base):
    for dim in dims:
        pieces = [piece.cpu() for piece in base.unbind(dim)]
        assert torch.equal(torch.stack(pieces, dim), host())


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("operation", "error", "message"),
    [
        (lambda x: x.mT.view(-1), RuntimeError, "view size is not compatible with input tensor's"),
        (lambda x: x.view(7, -1), RuntimeError, "shape '.*' is invalid for input of size 780"),
        (lambda x: x.view(-1, -1), RuntimeError, "only one dimension can be inferred"),
        (lambda x: x.as_strided((781,), (1,)), RuntimeError, "out of bounds"),
        (lambda x: x.as_strided((2,), (1,), 779), RuntimeError, "out of bounds"),
        (lambda x: x.as_strided((2,), (-1,), 5), RuntimeError, "Negative strides"),
        (lambda x: x.as_strided((2,), (1,), -1), RuntimeError, "storage offset"),
        (lambda x: x.as_strided((2,), (1, 1)), RuntimeError, "mismatch in length of strides"),
        (lambda x: x.as_strided((-2,), (1,)), RuntimeError, "negative"),
        (lambda x: x.as_strided((4, 4), (1 << 62, 1 << 62)), RuntimeError, "overflow"),
        (lambda x: x[4], IndexError, "out of bounds"),
        (lambda x: x.select(3, 0), IndexError, "Dimension out of range"),
        (lambda x: x.narrow(0, 3, 2), RuntimeError, "exceeds dimension size"),
        (lambda x: x.unfold(2, 66, 1), RuntimeError, "maximum size for tensor at dimension 2"),
        (lambda x: x.unfold(2, 2, 0), RuntimeError, "step is 0 but must be > 0"),
        (lambda x: x.unfold(5, 2, 1), IndexError, "Dimension out of range"),
        (lambda x: x.expand(4, 4, 65), RuntimeError, "must match the existing size"),
        (lambda x: x.permute(0, 1), RuntimeError, "permute"),
        (lambda x: x.transpose(0, 3), IndexError, "Dimension out of range"),
        (lambda x: x.unflatten(2, (2, 30)), RuntimeError, "unflatten"),
        (lambda x: x.reshape(7), RuntimeError, "shape '.*' is invalid"),
        (lambda x: x[::-1], ValueError, "step must be greater than zero"),
    ],
)
def test_impossible_view_is_refused_with_its_reason(operation, error, message, base):
    with pytest.raises(error, match=message):
        operation(base)
    assert torch.equal(base.cpu(), host())


# -------------------------------------------------------------------------------------- view(dtype)

SAME_BITS = [
    (torch.float32, torch.int32),
    (torch.int32, torch.float32),
    (torch.int8, torch.float8_e4m3fn),
    (torch.float8_e4m3fn, torch.int8),
    (torch.int8, torch.float8_e5m2fnuz),
]


@pytest.mark.parametrize(("source", "target"), SAME_BITS)
def test_view_as_a_dtype_of_the_same_bits(source, target):
    values = oracle.random_host((3, 70), source)
    x = values.to("spyre")
    viewed = x.view(target)
    assert viewed.data_ptr() == x.data_ptr()
    assert viewed.dtype == target
    oracle.assert_same_bits(viewed.cpu(), values.view(target))


@pytest.mark.parametrize(("source", "target"), SAME_BITS)
def test_view_as_a_dtype_of_a_view(source, target):
    values = oracle.random_host((6, 70), source)
    viewed = values.to("spyre")[1::2, 3:].view(target)
    oracle.assert_same_bits(viewed.cpu(), values[1::2, 3:].view(target))


def test_write_through_a_view_as_another_dtype():
    x = torch.zeros(2, 40, device="spyre")
    x.view(torch.int32)[1].fill_(0x3F800000)
    assert x.cpu().tolist() == [[0.0] * 40, [1.0] * 40]


def test_view_of_a_view_as_another_dtype_and_back():
    values = oracle.random_host((3, 70), torch.float32)
    back = values.to("spyre").view(torch.int32)[1:].t().view(torch.float32)
    oracle.assert_same_bits(back.cpu(), values[1:].t())


@pytest.mark.parametrize("dtype", oracle.DEVICE_DTYPES)
def test_view_as_its_own_dtype(dtype):
    x = oracle.random_host((3, 70), dtype).to("spyre")
    assert x.view(dtype).data_ptr() == x.data_ptr()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float16, torch.int16),
        (torch.int16, torch.float16),
        (torch.float16, torch.bfloat16),
        (torch.bool, torch.int8),
        (torch.uint8, torch.int8),
        (torch.int64, torch.int32),
        (torch.int64, torch.float64),
        (torch.float32, torch.float16),
        (torch.int8, torch.int16),
        (torch.int32, torch.uint32),
    ],
)
def test_view_as_a_dtype_of_other_bits_is_refused(source, target):
    x = torch.zeros(4, 64, dtype=source, device="spyre")
    name = str(target).removeprefix("torch.")
    with pytest.raises(NotImplementedError, match=rf"view\(torch\.{name}\) of a {source} tensor"):
        x.view(target)


# --------------------------------------------------------------------------------- chains of views


@st.composite
def chains(draw):
    """A shape and the names and arguments of views that can follow one another."""
    sizes = st.sampled_from([1, 2, 3, 5, 33, 64, 65])
    shape = draw(st.lists(sizes, min_size=1, max_size=4).filter(lambda s: math.prod(s) <= 5000))
    tensor, chain = torch.empty(shape, device="meta"), []
    for _ in range(draw(st.integers(1, 6))):
        rank = tensor.dim()
        dim = draw(st.integers(0, max(rank - 1, 0)))
        extent = tensor.shape[dim] if rank else 0
        options = [("unsqueeze", (draw(st.integers(0, rank)),)), ("squeeze", ())]
        if rank:
            start = draw(st.integers(0, extent))
            length = draw(st.integers(0, extent - start))
            width = draw(st.integers(0, min(extent, 4)))
            options += [
                ("narrow", (dim, start, length)),
                ("transpose", (dim, draw(st.integers(0, rank - 1)))),
                ("permute", tuple(draw(st.permutations(range(rank))))),
                ("unfold", (dim, width, draw(st.integers(1, 3)))),
                ("step", (dim, draw(st.integers(1, 3)))),
                ("expand", (2, *tensor.shape)),
            ]
            if extent:
                options.append(("select", (dim, draw(st.integers(-extent, extent - 1)))))
            if rank > 1 and tensor.is_contiguous():
                options.append(("flatten", (0, 1)))
        link = draw(st.sampled_from(options))
        result = follow(tensor, link)
        if result.dim() <= 7 and result.numel() <= 20_000:
            tensor = result
            chain.append(link)
    return shape, chain


def follow(tensor, link):
    name, arguments = link
    if name == "step":
        dim, step = arguments
        return tensor[(slice(None),) * dim + (slice(None, None, step),)]
    return getattr(tensor, name)(*arguments)


@given(chains(), st.sampled_from([torch.float16, torch.float32, torch.int8, torch.int32]))
def test_chain_of_views_is_the_same_view_as_on_the_cpu(chain, dtype):
    shape, links = chain
    values = (torch.arange(math.prod(shape)).view(shape) % 120).to(dtype)
    x = values.to("spyre")
    allocations, before = allocations_so_far(), torch.spyre.counters()
    viewed, expected = x, values
    for link in links:
        viewed, expected = follow(viewed, link), follow(expected, link)
    assert allocations_so_far() == allocations
    assert torch.spyre.counters() == before
    assert viewed.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert viewed.shape == expected.shape
    assert viewed.stride() == expected.stride()
    assert viewed.storage_offset() == expected.storage_offset()
    assert torch.equal(viewed.cpu(), expected)
    assert torch.equal(viewed.clone().cpu(), expected)
    assert torch.equal(viewed.reshape(-1).cpu(), expected.reshape(-1))


@given(chains())
def test_write_through_a_chain_of_views_is_seen_by_the_base(chain):
    shape, links = chain
    links = [link for link in links if link[0] not in ("expand", "unfold")]
    values = torch.arange(math.prod(shape)).view(shape) % 120
    x, expected = values.to("spyre", torch.int32), values.to(torch.int32)
    viewed, expected_view = x, expected
    try:
        for link in links:
            viewed, expected_view = follow(viewed, link), follow(expected_view, link)
    except (RuntimeError, IndexError):
        return  # a later link needed the one that was left out
    new = torch.arange(expected_view.numel(), dtype=torch.int32).view(expected_view.shape) - 50
    viewed.copy_(new)
    expected_view.copy_(new)
    assert torch.equal(x.cpu(), expected)
