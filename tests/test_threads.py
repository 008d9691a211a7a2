"""Many Python threads on one process's devices, and the end of threads and interpreters."""

import itertools
import textwrap
import threading
import traceback

import pytest
import torch
from kernels import gather
from subprocesses import forked, fresh

from torch_spyre.backend.compiler import compile_bundle

pytestmark = pytest.mark.usefixtures("settled")

THREADS = 8


def in_threads(work, count: int = THREADS) -> list:
    """Results of work(0) .. work(count - 1), run at the same time; fails if one raised or hung."""
    results, errors, start = [None] * count, [], threading.Barrier(count)

    def run(index: int) -> None:
        try:
            start.wait()
            results[index] = work(index)
        except BaseException:
            errors.append(traceback.format_exc())

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    assert not errors, errors[0]
    return results


# ------------------------------------------------------------------------------------------ the GIL

# A card that is full, but for memory which queued work still holds: an allocation waits for that.
WAITS_FOR_MEMORY = """
import threading, time, torch
from torch_spyre import _C
program = _C._Kernel({binary!r}, 0, [], [], 6 << 20)
host = torch.zeros(6 << 20, dtype=torch.int8).pin_memory()
held = torch.zeros(6 << 20, dtype=torch.int8, device="spyre")
torch.spyre._sleep(0.5)
host.copy_(held, non_blocking=True)
del held
ticks, done = 0, False
def tick():
    global ticks
    while not done:
        time.sleep(0.01)
        ticks += 1
thread = threading.Thread(target=tick)
thread.start()
before, start = ticks, time.perf_counter()
made = {call}
waited, during = time.perf_counter() - start, ticks - before
done = True
thread.join()
print([round(waited, 2), during])
"""


@pytest.mark.parametrize(
    "call",
    [
        "_C._empty_strided((6 << 20,), (1,), torch.int8, 0)",
        "program.bind(())",
        "_C.spyre_empty_with_layout([6 << 20], [1], torch.int8, "
        "_C.SpyreTensorLayout([6 << 20], torch.int8))",
    ],
)
def test_the_interpreter_runs_while_an_allocation_waits_for_memory(call, tmp_path):
    kernel = gather()
    kernel.bundle().write(tmp_path)
    code = WAITS_FOR_MEMORY.format(call=call, binary=compile_bundle(tmp_path))
    waited, ticks = forked(code, SPYRE_CARD_MEMORY="8M").value
    assert waited > 0.3, "the allocation did not wait"
    assert ticks >= 5


# ------------------------------------------------------------------------------------------ results


def test_threads_copy_both_ways_without_mixing_data():
    def work(index):
        good = 0
        for step in range(50):
            value = float(index * 50 + step)
            tensor = torch.full((33, 65), value, dtype=torch.float16).to("spyre")
            good += bool((tensor.cpu() == value).all())
        return good

    assert in_threads(work) == [50] * THREADS


def test_threads_have_their_own_streams():
    def work(index):
        host = torch.empty(100, dtype=torch.float16).pin_memory()
        source = torch.full((100,), float(index), dtype=torch.float16).pin_memory()
        good = 0
        with torch.spyre.Stream() as stream:
            for _ in range(30):
                tensor = torch.empty(100, dtype=torch.float16, device="spyre")
                tensor.copy_(source, non_blocking=True)
                tensor[50:].fill_(-1)
                host.zero_()
                host.copy_(tensor, non_blocking=True)
                stream.synchronize()
                good += bool((host[:50] == index).all() and (host[50:] == -1).all())
        return good

    assert in_threads(work) == [30] * THREADS


def test_threads_share_one_stream_in_order_of_submission():
    stream = torch.spyre.Stream()
    tensors = [torch.zeros(64, dtype=torch.float16, device="spyre") for _ in range(THREADS)]

    def work(index):
        with stream:
            for step in range(50):
                tensors[index].fill_(step)
            return tensors[index].cpu()[0].item()

    assert in_threads(work) == [49] * THREADS


def test_threads_use_different_cards():
    def work(index):
        torch.spyre.set_device(index % 2)
        total = 0
        for step in range(20):
            tensor = torch.full((100,), float(step), dtype=torch.float16, device="spyre")
            total += tensor.device.index
            other = tensor.to(f"spyre:{1 - index % 2}")
            assert (other.cpu() == step).all()
        return total

    assert in_threads(work) == [index % 2 * 20 for index in range(THREADS)]


def test_large_transfers_of_several_threads_share_the_workers():
    source = torch.randn(600, 1000)

    def work(index):
        return all(
            torch.equal((source + index).to("spyre").cpu(), source + index) for _ in range(4)
        )

    assert in_threads(work, 4) == [True] * 4


def test_tensors_made_in_one_thread_are_used_and_freed_in_another():
    before = torch.spyre.memory_allocated()
    made = in_threads(
        lambda index: [
            torch.full((64,), float(index), dtype=torch.float16, device="spyre") for _ in range(20)
        ]
    )
    assert [tensors[7].cpu()[0].item() for tensors in made] == list(range(THREADS))

    def drop(index):
        made[index].clear()

    in_threads(drop)
    assert torch.spyre.memory_allocated() == before


def test_events_order_threads():
    tensor = torch.zeros(100, dtype=torch.float16, device="spyre")
    event, recorded = torch.spyre.Event(), threading.Event()

    def work(index):
        with torch.spyre.Stream() as stream:
            if index == 0:
                torch.spyre._sleep(0.2)
                tensor.fill_(5)
                event.record()
                recorded.set()
                return 5
            recorded.wait()
            stream.wait_event(event)
            return tensor.cpu()[0].item()

    assert in_threads(work) == [5] * THREADS


# --------------------------------------------------------------------------------------- statistics


def test_statistics_are_consistent_after_many_threads():
    before = torch.spyre.memory_stats()
    free = torch.spyre.mem_get_info()[0]
    torch.spyre.reset_accumulated_memory_stats()

    def work(index):
        for step in range(200):
            tensor = torch.empty(64 * (step % 7 + 1), dtype=torch.float16, device="spyre")
            del tensor

    in_threads(work)
    stats = torch.spyre.memory_stats()
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 200 * THREADS
    assert stats["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
    assert torch.spyre.mem_get_info()[0] == free


def test_counters_are_exact_with_many_threads():
    torch.spyre.reset(0)
    source = torch.zeros(100, dtype=torch.float16)

    def work(index):
        with torch.spyre.Stream():
            tensor = torch.empty(100, dtype=torch.float16, device="spyre")
            for _ in range(50):
                tensor.copy_(source)
                tensor.cpu()

    in_threads(work)
    counters = torch.spyre.counters(0)
    assert counters.bytes_to_card == counters.bytes_to_host == 50 * THREADS * 200


def test_the_pool_hands_out_every_stream_once_to_many_threads():
    ids = in_threads(lambda index: [torch.spyre.Stream().id() for _ in range(4)])
    assert sorted(itertools.chain(*ids)) == list(range(1, 33))


def test_starting_the_device_from_many_threads_opens_each_card_once():
    code = """
    import threading, torch
    start, results = threading.Barrier(16), []
    def work(index):
        start.wait()
        tensor = torch.full((100,), float(index), device=f"spyre:{index % 4}")
        results.append((tensor.cpu() == index).all().item())
    threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print([int(all(results)), len(results), sum(torch.spyre.memory_allocated(d) for d in range(4))])
    """
    result = fresh(code, SPYRE_SOFT_CARDS=4, TORCH_SPYRE_DEBUG=1)
    assert result.value == [1, 16, 0]
    assert result.stderr.count("opened device") == 4


# --------------------------------------------------------------------------------------------- ends


def test_a_thread_may_end_with_queued_work():
    source = torch.full((100,), 4.0, dtype=torch.float16, device="spyre")
    host = torch.zeros(100, dtype=torch.float16).pin_memory()
    streams = []

    def work():
        stream = torch.spyre.Stream()
        with stream:
            torch.spyre._sleep(0.3)
            host.copy_(source, non_blocking=True)
        streams.append(stream)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not streams[0].query()
    torch.spyre.synchronize()
    assert (host == 4).all()


def test_a_thread_may_die_of_an_exception_inside_a_stream():
    caught = []

    def work():
        try:
            with torch.spyre.Stream():
                torch.spyre._sleep(0.1)
                torch.zeros(3, device="spyre").copy_(torch.zeros(4))
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.spyre.synchronize()
    assert len(caught) == 1
    assert torch.ones(3, device="spyre").cpu().tolist() == [1, 1, 1]


QUEUED = """
    import threading, torch
    source = torch.ones(1000, 1000, dtype=torch.float16, device="spyre")
    host = torch.zeros(1000, 1000, dtype=torch.float16).pin_memory()
    def queue():
        for _ in range(4):
            with torch.spyre.Stream():
                torch.spyre._sleep(0.2)
                host.copy_(source, non_blocking=True)
                source.clone()
                torch.spyre.Event().record()
    queue()
"""

ENDS = {
    "nothing else": "",
    "objects of every kind alive": """
cycle = [source, host]
cycle.append(cycle)
stream = torch.spyre.Stream()
event = stream.record_event()
local = threading.local()
local.tensor, local.stream = source.clone(), stream
""",
    "threads": """
def wait():
    queue()
    threading.Event().wait()
threading.Thread(target=wait, daemon=True).start()
threading.Thread(target=queue).start()
thread = threading.Thread(target=queue)
thread.start()
thread.join()
""",
    "work from atexit": "import atexit; atexit.register(lambda: source.cpu())",
    "work after free_runtime": "import torch_spyre._C as _C; _C.free_runtime(); queue()",
}


@pytest.mark.parametrize("end", ENDS)
def test_an_interpreter_with_queued_work_ends_cleanly(end):
    result = fresh(textwrap.dedent(QUEUED) + textwrap.dedent(ENDS[end]), timeout=30)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_an_exception_with_queued_work_is_reported_as_ever():
    result = fresh(textwrap.dedent(QUEUED) + "raise KeyError('mine')", timeout=30)
    assert result.returncode == 1
    assert result.stderr.endswith("KeyError: 'mine'\n")


def test_work_queued_at_the_end_is_done_before_the_process_is_gone(tmp_path):
    code = f"""
    import numpy, torch
    file = numpy.memmap({str(tmp_path / "result")!r}, dtype=numpy.float16, mode="w+", shape=1000)
    source = torch.full((1000,), 5.0, dtype=torch.float16, device="spyre")
    host = torch.zeros(1000, dtype=torch.float16).pin_memory()
    torch.spyre._sleep(0.3)
    host.copy_(source, non_blocking=True)
    import atexit
    def save():
        file[:] = host.numpy()
    import torch_spyre._C as _C
    atexit.register(save)
    atexit.register(_C.free_runtime)  # runs first, as it does for the package itself
    """
    assert fresh(code).returncode == 0
    data = torch.from_file(str(tmp_path / "result"), size=1000, dtype=torch.float16)
    assert (data == 5).all()
