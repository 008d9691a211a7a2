"""Work that fails after its call has returned: who waits gets the error, never stale numbers."""

import threading

import pytest
import torch
from kernels import gather
from streams import NAP

from torch_spyre._C import _Program
from torch_spyre.backend.compiler import compile_bundle

pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A gather whose index can be made bad."""
    directory = tmp_path_factory.mktemp("gather")
    kernel = gather()
    kernel.bundle().write(directory)
    kernel.tensors[0].fill_(100)  # of 100 rows
    return _Program(compile_bundle(directory)), kernel.tensors


@pytest.fixture
def fail(program):
    """Queues a gather that fails, and returns its result, which keeps what it had."""
    loaded, (index, values, out) = program

    def queue() -> torch.Tensor:
        out.fill_(3)
        torch.spyre._sleep(NAP / 4)  # so that the stream's own thread runs what follows
        loaded.launch([index, values, out])
        return out

    return queue


WAITS = {
    "cpu": lambda out: out.cpu(),
    "item": lambda out: out[0, 0, 0].item(),
    "copy to the host": lambda out: torch.empty(out.shape, dtype=out.dtype).copy_(out),
    "copy to the card": lambda out: out.copy_(torch.zeros(out.shape, dtype=out.dtype)),
    "new tensor": lambda out: torch.zeros(3).to("spyre"),
    "print": repr,
    "synchronize": lambda out: torch.spyre.synchronize(),
    "device": lambda out: torch.spyre.synchronize(0),
    "stream": lambda out: torch.spyre.current_stream().synchronize(),
    "accelerator": lambda out: torch.accelerator.synchronize(),
    "event": lambda out: torch.spyre.current_stream().record_event().synchronize(),
    "torch.Event": lambda out: torch_event().synchronize(),
}


def torch_event() -> torch.Event:
    event = torch.Event("spyre")
    event.record()
    return event


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_whoever_waits_gets_the_error_once(fail, wait):
    out = fail()
    with pytest.raises((RuntimeError, IndexError), match="index 100 is out of bounds"):
        wait(out)
    # Reported: the device works on, and nothing behind the failure was run.
    torch.spyre.synchronize()
    assert out.cpu().unique().tolist() == [3]


def test_work_queued_behind_a_failure_is_not_run(fail):
    kept = torch.ones(64, device="spyre")
    out = fail()
    kept.add_(1)
    summed = kept + out[0, 0, :64]
    host = torch.zeros(64).pin_memory()
    host.copy_(summed, non_blocking=True)
    with pytest.raises((RuntimeError, IndexError), match="queued behind it was not run"):
        torch.spyre.synchronize()
    assert kept.cpu().unique().tolist() == [1]
    assert host.unique().tolist() == [0]
    assert kept.add_(1).cpu().unique().tolist() == [2]


def poll(stream_or_event):
    while not stream_or_event.query():
        pass


def test_an_op_of_an_idle_stream_gets_the_error(fail):
    out = fail()
    with pytest.raises((RuntimeError, IndexError), match="index 100"):
        poll(torch.spyre.current_stream())
    with pytest.raises((RuntimeError, IndexError), match="index 100"):
        out.add_(1)
    assert out.cpu().unique().tolist() == [3]


def test_whoever_polls_gets_the_error(fail):
    out = fail()
    host = torch.full((64,), 7.0).pin_memory()
    host.copy_(out.flatten()[:64], non_blocking=True)
    event = torch.spyre.Event()
    event.record()
    with pytest.raises((RuntimeError, IndexError), match="index 100"):
        poll(event)
    assert host.unique().tolist() == [7]
    with pytest.raises((RuntimeError, IndexError), match="index 100"):
        torch.spyre.synchronize()
    assert torch.spyre.current_stream().query()


def test_a_stream_that_waits_for_failed_work_has_failed(fail):
    side = torch.spyre.Stream()
    out = fail()
    side.wait_stream(torch.spyre.current_stream())
    with torch.spyre.stream(side), pytest.raises((RuntimeError, IndexError), match="index 100"):
        out.cpu()
    with pytest.raises((RuntimeError, IndexError), match="index 100"):
        torch.spyre.current_stream().synchronize()
    torch.spyre.synchronize()


def test_threads_that_wait_together_all_get_it(fail):
    out, told = fail(), []

    def wait():
        try:
            out.cpu()
        except (RuntimeError, IndexError) as error:
            told.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 3
    assert all("index 100" in message for message in told)


def test_a_compiled_gather_that_fails_later_is_not_silent():
    @torch.compile
    def pick(x, index):
        return x[index] * 2

    x, index = torch.randn(64, 64).to("spyre"), torch.arange(64).to("spyre")
    assert torch.equal(pick(x, index).cpu(), (x[index] * 2).cpu())
    index.fill_(64)
    torch.spyre._sleep(NAP / 4)
    with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        pick(x, index).cpu()
