"""What Inductor makes of the ops of a graph."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from torch_spyre.patches.replacing import on_card, replaced, replaced_items


@contextlib.contextmanager
def lowered_by(changed: dict[Any, Any]) -> Iterator[None]:
    """While a spyre graph is lowered: some ops have other lowerings.

    Missing upstream: lowerings by device. A new lowering replaces Inductor's own for all devices.
    """
    from torch._inductor import ir, lowering

    with (
        replaced_items(lowering.lowerings, changed),
        # The card has no Welford reduction; two passes are as exact.
        _always_on_card(lowering, "use_two_step_variance"),
        # A value that is used twice is computed once.
        _always_on_card(ir.Loops, "has_large_inner_fn"),
    ):
        yield


def _always_on_card(owner: Any, name: str) -> contextlib.AbstractContextManager[None]:
    """While it lasts, the answer to a question that Inductor asks about a node is yes, if the node
    is on the card."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def answer(node: Any, *args: Any, **kwargs: Any) -> Any:
        return on_card(node) or original(node, *args, **kwargs)

    return replaced(owner, name, answer)
