"""The accounts of a kernel for people."""

from collections.abc import Iterable

from torch_spyre.cost import Account
from torch_spyre.tools.tables import Table, size


def cost_table(accounts: Iterable[Account]) -> Table:
    """One op a row: what it moves in all its iterations, how long that takes, and why."""
    headings = ("op", "times", "cores", "read", "written", "LX", "ring", "us", "use", "bound")
    table = Table(headings, numbers=frozenset(range(1, 9)))
    for account in accounts:
        cost = account.cost
        moved = (cost.read_bytes, cost.written_bytes, cost.all_lx_bytes, cost.ring_bytes)
        table.add(
            account.name,
            str(account.count),
            str(cost.cores),
            *(size(nbytes * account.count) for nbytes in moved),
            f"{account.ns / 1000:.2f}",
            f"{account.utilisation:.0%}",
            account.price.bound,
        )
    return table
