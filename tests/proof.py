"""Runs a callable on the card and on the CPU, and says how the card did.

What PyTorch's databases of ops and of modules share: moving arguments to the card with their
strides and aliases, references, tolerances, and the verdict: right natively, right through a warned
fallback, refused, or wrong.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_flatten

from torch_spyre.ops.fallbacks import FallbackWarning, fallback_counts, reset_fallback_counts

DEVICE = torch.device("spyre", 0)
DTYPES = (torch.float16, torch.float32, torch.int64, torch.bool)
HALF = (torch.float16, torch.bfloat16)

# Facts about DLFloat16: 9 fraction bits, so that one unit in the last place is 2**-9 of the value.
ULP = 2.0**-9
# Back on the host a float16 tensor has IEEE half's range: its subnormals' spacing, its largest.
SMALLEST = 2.0**-24
LARGEST = 65504.0


class WrongResult(AssertionError):
    """The card returned something else than the CPU."""


# ------------------------------------------------------------------------------- moving arguments


def convert(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same arguments with every leaf replaced."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(convert(entry, leaf) for entry in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(convert(entry, leaf) for entry in tree)
    if isinstance(tree, dict):
        return {key: convert(entry, leaf) for key, entry in tree.items()}
    return leaf(tree)


def tensors(tree: Any) -> list[torch.Tensor]:
    return [entry for entry in tree_flatten(tree)[0] if isinstance(entry, torch.Tensor)]


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor is all of its storage, in order."""
    own = tensor.numel() * tensor.element_size()
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == own


def _on_cpu(leaf: Any) -> bool:
    """Whether a leaf is a tensor that goes to the card; those of other devices stay there."""
    return isinstance(leaf, torch.Tensor) and leaf.is_cpu


class Arguments:
    """One set of arguments three times: on the card, as the card holds them, and widened.

    Tensors keep their strides and offsets, and share memory where they shared it before. `host` has
    the values which the card really holds (DLFloat16 has a bit less than float16), `wide` the same
    values as float32 wherever `host` has a 16-bit float, with dtype arguments changed alike.
    """

    def __init__(self, tree: Any) -> None:
        self._card: dict[int, torch.Tensor] = {}
        self._host: dict[int, torch.Tensor] = {}
        self._wide: dict[int, torch.Tensor] = {}
        self._keep: list[torch.UntypedStorage] = []
        self.card = convert(tree, self._to_card)
        self.host = convert(tree, self._to_host)
        self.wide = convert(tree, self._to_wide)

    def _storages(self, tensor: torch.Tensor) -> int:
        """Moves the whole storage of a CPU tensor once; the key of its copies."""
        storage = tensor.untyped_storage()
        key = storage.data_ptr() or id(tensor)
        if key not in self._card:
            flat = tensor.detach()
            if not _is_whole(tensor):
                flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
            self._keep.append(storage)
            self._card[key] = flat.to(DEVICE)
            self._host[key] = self._card[key].cpu()
            wide = torch.float32 if tensor.dtype in HALF else tensor.dtype
            self._wide[key] = self._host[key].to(wide, copy=True)
        return key

    def _view(self, copies: dict[int, torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
        base = copies[self._storages(tensor)]
        if not _is_whole(tensor):
            base = base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        return base

    def _to_card(self, leaf: Any) -> Any:
        if _on_cpu(leaf):
            return self._view(self._card, leaf)
        if isinstance(leaf, torch.device) or leaf == "cpu":
            return DEVICE
        if isinstance(leaf, torch.Generator):
            return torch.Generator(DEVICE).manual_seed(leaf.initial_seed())
        return leaf

    def _to_host(self, leaf: Any) -> Any:
        return self._view(self._host, leaf) if _on_cpu(leaf) else leaf

    def _to_wide(self, leaf: Any) -> Any:
        if _on_cpu(leaf):
            return self._view(self._wide, leaf)
        return torch.float32 if leaf in HALF and isinstance(leaf, torch.dtype) else leaf


# --------------------------------------------------------------------------------------- running


@dataclasses.dataclass
class Verdict:
    """How the card did on one or several sets of arguments."""

    native: int = 0
    fallback: int = 0
    refused: int = 0
    steps: int = 1  # that the last call took on the card
    fallbacks: set[str] = dataclasses.field(default_factory=set)
    refusals: set[str] = dataclasses.field(default_factory=set)

    @property
    def word(self) -> str:
        if self.fallback:
            return "fallback"
        if self.native:
            return "native"
        return "refused" if self.refused else "no sample"


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """What float32 results may differ by; for 16-bit floats the format decides.

    `together`: the results come out of one long chain of ops, whose roundings have the size of the
    largest of them.
    """

    relative: float = 1.3e-6
    absolute: float = 1e-5
    together: bool = False


DEFAULT = Tolerance()


def _call(function: Callable[..., Any], arguments: Any, seed: int) -> Any:
    args, kwargs = arguments
    seed_all(seed)
    return function(*args, **kwargs)


def seed_all(seed: int) -> None:
    """torch.manual_seed() without a traceback kept for every kind of device that is absent."""
    torch.default_generator.manual_seed(seed)
    torch.spyre.manual_seed_all(seed)


def judge(
    function: Callable[..., Any],
    arguments: Any,
    verdict: Verdict,
    tolerance: Tolerance = DEFAULT,
    uninitialised: bool = False,
    half_on_cpu: bool = True,
    seeds_itself: bool = False,
    choices: tuple[int, int] | None = None,
    steps: int = 1,
    strict: bool = False,
) -> Any:
    """Call `function` with `arguments`, (args, kwargs), on the card and on the CPU, and compare.

    Adds to the verdict and returns the card's result, None if there is none. Raises `WrongResult`
    where the card is wrong. Arguments which the CPU refuses are left out, but for 16-bit floats
    without `half_on_cpu`: then the CPU's float32 results, in 16 bits, are the reference. A function
    that `seeds_itself` may be random though it leaves the generators alone. With `choices`, a
    result and a dim, that result indexes the first argument along the dim, and other indices may
    be as good. Each of the card's steps rounds its results: there are at least `steps`. If
    `strict`, NaN and Infinity are where the CPU has them in the same dtype, and what the CPU
    refuses in float32, too, is refused by the card.
    """
    try:
        moved = Arguments(arguments)
    except (ValueError, TypeError) as error:
        if "no Spyre device representation" in str(error) or "does not support dtype" in str(error):
            return None  # a further argument of a dtype that no device tensor has
        raise
    if not all(map(_fits, tensors(arguments))):
        return None  # the card's int64 has 32 bits
    if not any(_on_card(leaf) for leaf in tree_flatten(moved.card)[0]):
        return None  # a factory that is not told the device
    half = any(map(_is_half, tree_flatten(arguments)[0]))
    seeded = torch.default_generator.manual_seed(0).get_state()
    try:
        expected = _call(function, moved.host, 0)
        wide = _wide_result(function, moved, expected) if half else expected
        aliases = moved.host, expected
    except Exception:
        try:
            wide = _call(function, moved.wide, 0)
        except Exception as error:
            if strict:
                _check_refused(function, moved.card, error)
            return None
        if half_on_cpu or not half:
            return None
        expected = convert(wide, _narrow)
        aliases = moved.wide, wide
    random = not torch.equal(seeded, torch.get_rng_state()) or _has_generator(arguments)
    if seeds_itself and not uninitialised:
        random = random or varies(function, arguments)

    reset_fallback_counts()
    launches = torch.spyre.counters().launches
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        try:
            got = _call(function, moved.card, 0)
        except Exception as error:
            _check_refusal(error)
            verdict.refused += 1
            verdict.refusals.add(f"{type(error).__name__}: {error}")
            return None
    fell = set(fallback_counts())
    warned = {
        str(entry.message).split(" ")[0]
        for entry in caught
        if issubclass(entry.category, FallbackWarning)
    }
    if fell != warned:
        raise WrongResult(f"fell back {fell}, warned about {warned}")
    # What ran on the card, or for it on the CPU, one after the other: each rounds its result.
    launches = torch.spyre.counters().launches - launches
    steps = verdict.steps = max(steps, launches + sum(fallback_counts().values()))

    if random:
        again = _call(function, Arguments(arguments).card, 0)
        check_random(got, again, expected)
    else:
        if choices is not None:
            got, expected, wide = (
                _chosen(*pair, choices)
                for pair in ((got, moved.card), (expected, moved.host), (wide, moved.wide))
            )
        try:
            check(got, expected, wide, tolerance, steps, values=not uninitialised)
        except WrongResult:
            exact = None if half else _exact_result(function, arguments, expected)
            if exact is None:
                raise
            check(got, expected, exact, tolerance, steps, values=not uninitialised)
        check_aliases(moved.card, got, *aliases)
        if not uninitialised:
            # Arguments afterwards: changed like the CPU's, and otherwise not at all.
            after = (moved.card, moved.host, moved.wide if half else moved.host)
            check(*(tensors(tree) for tree in after), tolerance, steps)
            if strict:
                check_places((got, moved.card), (expected, aliases[0]))
    verdict.fallbacks |= fell
    if fell:
        verdict.fallback += 1
    else:
        verdict.native += 1
    return got


def _chosen(results: Any, moved: Any, choices: tuple[int, int]) -> Any:
    """The results with the values that indices choose in place of the indices."""
    number, dim = choices
    source = moved[0][0]
    results = [results] if isinstance(results, torch.Tensor) else list(results)
    index = results[number]
    if source.dim() > 0 and index.numel() > 0:
        kept = index if index.dim() == source.dim() else index.unsqueeze(dim)
        results[number] = source.gather(dim, kept)
    return results


def varies(function: Callable[..., Any], arguments: Any) -> bool:
    """Whether the CPU's result depends on the seed that the function chooses."""
    results = []
    seed = torch.manual_seed
    for shift in range(1, 9):
        with mock.patch("torch.manual_seed", lambda value, by=shift: seed(value + by)):
            try:
                result = _call(function, Arguments(arguments).wide, shift)
            except Exception:
                return False  # refused, also when it is compared
        results.append([torch.nan_to_num(tensor) for tensor in tensors(result)])
        if not all(map(torch.equal, results[0], results[-1])):
            return True
    return False


def _exact_result(function: Callable[..., Any], arguments: Any, expected: Any) -> Any:
    """The CPU in float64, which says where float32 itself is as far off; None if it refuses."""
    exact = convert(Arguments(arguments).host, _double)
    try:
        result = _call(function, exact, 0)
    except Exception:
        return None
    same = [t.shape for t in tensors(result)] == [t.shape for t in tensors(expected)]
    return result if same else None


def _double(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.double() if leaf.dtype == torch.float32 else leaf
    return torch.float64 if leaf is torch.float32 else leaf


def _narrow(leaf: Any) -> Any:
    narrow = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32
    return leaf.half() if narrow else leaf


def _is_half(leaf: Any) -> bool:
    dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else leaf
    return isinstance(dtype, torch.dtype) and dtype in HALF


def _on_card(leaf: Any) -> bool:
    return leaf == DEVICE if isinstance(leaf, torch.device) else isinstance(leaf, torch.Tensor)


def _has_generator(arguments: Any) -> bool:
    return any(isinstance(entry, torch.Generator) for entry in tree_flatten(arguments)[0])


def _fits(tensor: torch.Tensor) -> bool:
    if tensor.dtype != torch.int64 or tensor.numel() == 0:
        return True
    limits = torch.iinfo(torch.int32)
    return limits.min <= int(tensor.min()) and int(tensor.max()) <= limits.max


def _wide_result(function: Callable[..., Any], moved: Arguments, expected: Any) -> Any:
    """The reference for 16-bit floats: the CPU in float32. Where that is refused, in 16 bits."""
    try:
        wide = _call(function, moved.wide, 0)
    except Exception:
        return expected
    same = [t.shape for t in tensors(wide)] == [t.shape for t in tensors(expected)]
    return wide if same else expected


def _check_refusal(error: Exception) -> None:
    """A refusal says what is missing; an assertion inside PyTorch or the package does not."""
    text = str(error)
    if not text or "INTERNAL ASSERT" in text or isinstance(error, (AssertionError, SystemError)):
        raise error


def _check_refused(function: Callable[..., Any], arguments: Any, error: Exception) -> None:
    """The card refuses what the CPU refuses with that error."""
    try:
        _call(function, arguments, 0)
        torch.spyre.synchronize()
    except Exception as ours:
        if type(ours) is not type(error):
            _check_refusal(ours)
    else:
        raise WrongResult(f"accepted, where the CPU says: {error}")


# ------------------------------------------------------------------------------------- comparing


def check(
    got: Any, expected: Any, wide: Any, tolerance: Tolerance, steps: int = 1, values: bool = True
) -> None:
    """Every leaf of `got` is what `expected` (and more exactly `wide`) says."""
    got, expected, wide = (tree_flatten(tree)[0] for tree in (got, expected, wide))
    if len(got) != len(expected):
        raise WrongResult(f"{len(got)} results, expected {len(expected)}")
    for i, (ours, cpu, more) in enumerate(zip(got, expected, wide, strict=True)):
        if isinstance(cpu, torch.Tensor):
            try:
                largest = _largest(wide if tolerance.together else [more])
                _check_tensor(ours, cpu, more, tolerance, steps, largest, values)
            except WrongResult as error:
                raise WrongResult(f"result {i}: {error}") from None
        elif isinstance(cpu, float):
            if not math.isclose(ours, cpu, rel_tol=ULP) and not (ours != ours and cpu != cpu):
                raise WrongResult(f"result {i}: {ours!r}, expected {cpu!r}")
        elif isinstance(cpu, (bool, int, str)) and ours != cpu:
            raise WrongResult(f"result {i}: {ours!r}, expected {cpu!r}")


def _check_tensor(
    ours: torch.Tensor,
    cpu: torch.Tensor,
    wide: torch.Tensor,
    tolerance: Tolerance,
    steps: int,
    largest: float,
    values: bool,
) -> None:
    if not isinstance(ours, torch.Tensor) or ours.device.type != "spyre":
        raise WrongResult(f"{getattr(ours, 'device', type(ours))}, expected a spyre tensor")
    if ours.shape != cpu.shape or ours.dtype != cpu.dtype:
        raise WrongResult(
            f"{tuple(ours.shape)} {ours.dtype}, expected {tuple(cpu.shape)} {cpu.dtype}"
        )
    if not values or cpu.numel() == 0:
        return
    exact = wide.dtype == torch.float64 and cpu.dtype == torch.float32
    narrow = cpu.dtype in HALF or (wide is not cpu and not exact)  # 16-bit floats on the way
    ours, cpu = ours.detach().cpu().resolve_neg(), cpu.detach().resolve_neg()
    if not cpu.dtype.is_floating_point:
        if cpu.dtype == torch.int64:  # 32 bits on the card
            cpu = cpu.to(torch.int32).long()
        good = ours == cpu
    elif narrow:
        good = close_in_format(ours, cpu, wide.detach(), steps, largest)
    elif exact:  # as close as the CPU's float32 is, in ops that lose many digits
        lost = 2 * (cpu.double() - wide.detach()).abs()
        good = torch.isclose(ours.double(), wide.detach(), 0, tolerance.absolute, equal_nan=True)
        good |= (ours - wide.detach()).abs() <= tolerance.relative * wide.detach().abs() + lost
    else:
        good = torch.isclose(ours, cpu, tolerance.relative, tolerance.absolute, equal_nan=True)
    if not good.all():
        bad = ~good
        where = tuple(bad.nonzero()[0].tolist())
        raise WrongResult(
            f"{int(bad.sum())} of {bad.numel()} elements wrong ({cpu.dtype}, {steps} steps), at "
            f"{where}: {ours[where].item()!r}, expected {cpu[where].item()!r}, "
            f"in float32 {wide.detach()[where].item()!r}"
        )


def _largest(results: list[Any]) -> float:
    """The largest finite magnitude that float16 can hold."""
    found = 0.0
    for tensor in results:
        if isinstance(tensor, torch.Tensor) and tensor.dtype.is_floating_point:
            finite = tensor.detach()[tensor.isfinite()].abs()
            found = max(found, float(finite.max())) if finite.numel() else found
    return min(found, LARGEST)


def close_in_format(
    ours: torch.Tensor, cpu: torch.Tensor, wide: torch.Tensor, steps: int, largest: float
) -> torch.Tensor:
    """Which elements are right in DLFloat16.

    Each of the ops that a call consists of rounds once: a unit in the last place of the result, and
    of the largest element where several ops follow each other, since what an op in the middle
    rounds may cancel later. Such errors have either sign, and add up like a random walk. Where half
    precision itself loses more, the CPU's loss in IEEE half (10 fraction bits) says how much: up to
    four times that in DLFloat16. Beyond half's range a result is Inf. A bfloat16 result is rounded
    once more when it is read: to one of the two nearest.
    """
    unit = torch.finfo(torch.bfloat16).eps if ours.dtype == torch.bfloat16 else ULP
    exact, cpu, ours = wide.double(), cpu.double(), ours.double()
    lost = torch.nan_to_num((cpu - exact).abs(), nan=0.0, posinf=0.0, neginf=0.0)
    size = exact.abs() + (largest / 2 if steps > 1 else 0)
    allowed = math.sqrt(steps) * unit * size + SMALLEST + 4 * lost
    good = (ours - exact).abs() <= allowed
    good |= (ours == exact) | (ours == cpu) | (ours.isnan() & (exact.isnan() | cpu.isnan()))
    beyond = exact.abs() + allowed > LARGEST
    good |= beyond & (ours.sign() == exact.sign()) & (ours.abs() >= LARGEST - allowed)
    return good | (~cpu.isfinite() & exact.isfinite() & ~ours.isfinite())


def check_places(got: Any, expected: Any) -> None:
    """NaN and Infinity are where the CPU has them."""
    for i, (ours, cpu) in enumerate(zip(tensors(got), tensors(expected), strict=True)):
        if not cpu.is_floating_point():
            continue
        ours, cpu = ours.detach().cpu(), cpu.detach()
        bad = ours.isnan() != cpu.isnan()
        bad |= (ours.isposinf() != cpu.isposinf()) | (ours.isneginf() != cpu.isneginf())
        if bad.any():
            where = tuple(bad.nonzero()[0].tolist())
            raise WrongResult(
                f"result {i}: {int(bad.sum())} of {bad.numel()} elements in other places, at "
                f"{where}: {ours[where].item()!r}, expected {cpu[where].item()!r}"
            )


def check_aliases(ours: Any, got: Any, cpu: Any, expected: Any) -> None:
    """Results share memory with arguments exactly where the CPU's do."""

    def shared(arguments: Any, results: Any) -> list[list[bool]]:
        places = [t.untyped_storage().data_ptr() for t in tensors(arguments)]
        return [
            [t.untyped_storage().data_ptr() == place for place in places] if t.numel() else []
            for t in tensors(results)
        ]

    if shared(ours, got) != shared(cpu, expected):
        raise WrongResult(f"aliases {shared(ours, got)}, expected {shared(cpu, expected)}")


def check_random(got: Any, again: Any, expected: Any) -> None:
    """Random results: the same for the same seed; shape, dtype and rough range of the CPU's."""
    check(got, expected, expected, Tolerance(), values=False)
    for ours, twin, cpu in zip(tensors(got), tensors(again), tensors(expected), strict=True):
        ours, twin = ours.detach().cpu(), twin.detach().cpu()
        if not torch.equal(torch.nan_to_num(ours), torch.nan_to_num(twin)):
            raise WrongResult("not the same for the same seed")
        if cpu.numel() and cpu.isfinite().all() and not ours.isfinite().all():
            raise WrongResult("Inf or NaN, where the CPU's results are finite")


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
