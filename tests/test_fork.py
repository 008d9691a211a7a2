"""Processes made by fork and spawn: a clear error where the device cannot be used, never a hang."""

import textwrap

from subprocesses import forked, fresh

# What the snippets below share: run a function in a forked child, wait, and say how it went.
IN_CHILD = """
import gc, json, os, sys, threading, torch
def in_child(function):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = function()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(answer) if status == 0 else f"exit {status}"
def failure(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
"""


STARTED = """
tensor = torch.full((100,), 3.0, dtype=torch.float16, device="spyre")
"""


def run(code: str, **environment):
    """Result of a snippet that begins in a process that has not started the device."""
    return forked(IN_CHILD + textwrap.dedent(code), **environment).value


def run_started(code: str, **environment):
    """Result of a snippet that begins with a tensor on the card."""
    return run(STARTED + textwrap.dedent(code), **environment)


def test_every_use_in_the_child_of_a_started_process_is_a_clear_error():
    code = """
    event, recorded = torch.spyre.Event(enable_timing=True), torch.spyre.Event(enable_timing=True)
    recorded.record()
    stream = torch.spyre.Stream()
    host = torch.zeros(100, dtype=torch.float16).pin_memory()
    uses = {
        "empty": lambda: torch.empty(3, device="spyre"),
        "zeros": lambda: torch.zeros(3, device="spyre"),
        "to": lambda: torch.zeros(3).to("spyre"),
        "other card": lambda: torch.zeros(3, device="spyre:1"),
        "cpu": tensor.cpu,
        "item": lambda: tensor[0].item(),
        "print": lambda: str(tensor),
        "fill": lambda: tensor.fill_(1),
        "clone": tensor.clone,
        "copy": lambda: host.copy_(tensor, non_blocking=True),
        "synchronize": torch.spyre.synchronize,
        "accelerator": torch.accelerator.synchronize,
        "stream": stream.synchronize,
        "query": stream.query,
        "record": event.record,
        "init": torch.spyre.init,
        "properties": torch.spyre.get_device_properties,
        "counters": torch.spyre.counters,
        "reset": torch.spyre.reset,
        "memory": torch.spyre.mem_get_info,
        "sleep": lambda: torch.spyre._sleep(0.1),
    }
    print(json.dumps(in_child(lambda: {name: failure(use) for name, use in uses.items()})))
    """
    for use, message in run_started(code, SPYRE_SOFT_CARDS=2).items():
        assert message.startswith("RuntimeError: "), (use, message)
        assert "forked subprocess" in message, (use, message)
        assert "spawn" in message, (use, message)  # what to do


def test_the_parent_goes_on_after_its_child_failed():
    code = """
    answer = in_child(lambda: failure(tensor.cpu))
    tensor.fill_(4)
    print(json.dumps([answer[:12], tensor.cpu()[:2].tolist()]))
    """
    assert run_started(code) == ["RuntimeError", [4, 4]]


def test_queries_in_the_child_say_what_is_wrong():
    code = """
    def queries():
        spyre = torch.spyre
        return [spyre.is_available(), spyre.is_initialized(), spyre._is_in_bad_fork(),
                spyre.device_count()]
    before = queries()
    torch.zeros(3, device="spyre")
    print(json.dumps([before, queries(), in_child(queries), queries()]))
    """
    before, started, child, parent = run(code)
    assert before == [True, False, False, 1]
    assert started == parent == [True, True, False, 1]
    assert child == [True, False, True, 1]


def test_cpu_work_and_seeding_go_on_in_the_child():
    code = """
    def work():
        torch.manual_seed(3)
        return torch.rand(2).tolist()
    child = in_child(work)
    torch.manual_seed(3)
    print(json.dumps([child, torch.rand(2).tolist()]))
    """
    child, parent = run_started(code)
    assert child == parent


def test_the_child_frees_inherited_tensors_streams_and_events():
    code = """
    things = [tensor, tensor[3:], tensor.untyped_storage(), torch.spyre.Stream(),
              torch.zeros(10).pin_memory(), torch.spyre.Event(enable_timing=True)]
    things[-1].record()
    def drop():
        global tensor
        del things[:], tensor
        gc.collect()
        return "freed"
    answers = [in_child(drop) for _ in range(3)]
    print(json.dumps([answers, tensor.cpu()[0].item(), torch.spyre.memory_allocated()]))
    """
    assert run_started(code) == [["freed"] * 3, 3, 256]


def test_pending_events_do_not_hang_the_child():
    code = """
    done, start, end = (torch.spyre.Event(enable_timing=True) for _ in range(3))
    done.record()
    done.synchronize()
    with torch.spyre.Stream() as stream:
        start.record()
        torch.spyre._sleep(0.5)
        end.record()
    def use():
        return [failure(f) for f in (
            end.synchronize, end.query, lambda: start.elapsed_time(end), lambda: end.wait(),
            lambda: torch.spyre.default_stream().wait_event(end),
            lambda: torch.spyre.default_stream().wait_stream(stream))]
    print(json.dumps(in_child(use)))
    """
    synchronize, query, elapsed, *waits = run_started(code)
    for message in (synchronize, elapsed, *waits):
        assert "forked subprocess" in message
    assert query == "no error" or "forked subprocess" in query


def test_queued_work_of_the_parent_does_not_hang_the_child():
    code = """
    host = torch.zeros(100, dtype=torch.float16).pin_memory()
    torch.spyre._sleep(0.5)
    host.copy_(tensor, non_blocking=True)
    def leave():
        global tensor, host
        message = failure(torch.spyre.synchronize)
        del tensor, host
        gc.collect()
        return message
    answer = in_child(leave)
    torch.spyre.synchronize()
    print(json.dumps([answer[:12], host[0].item()]))
    """
    assert run_started(code) == ["RuntimeError", 3]


def test_forking_while_threads_use_the_device_never_hangs():
    code = """
    stop = threading.Event()
    def busy():
        source = torch.randn(64, 64).half()
        with torch.spyre.Stream():
            while not stop.is_set():
                source.to("spyre").cpu()
                torch.spyre.memory_stats()
    threads = [threading.Thread(target=busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    def child():
        global tensor
        message = failure(tensor.cpu)
        failure(torch.spyre.memory_allocated)
        failure(torch.spyre.max_memory_allocated)
        failure(torch.spyre.memory_stats)
        failure(torch.spyre.empty_cache)
        failure(torch.spyre.device_count)
        torch.manual_seed(1)
        torch.empty(10).is_pinned()
        del tensor
        gc.collect()
        return message[:12]
    answers = {in_child(child) for _ in range(12)}
    stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps(sorted(answers)))
    """
    assert run_started(code) == ["RuntimeError"]


def test_forking_while_threads_pin_memory_never_hangs_the_child():
    """Whether the device has started or not: pinned memory is the host's."""
    code = """
    stop = threading.Event()
    def busy():
        while not stop.is_set():
            for _ in range(200):
                torch.empty(8, pin_memory=True, device="cpu").is_pinned()
    threads = [threading.Thread(target=busy) for _ in range(3)]
    pinned = torch.ones(100).pin_memory()
    for thread in threads:
        thread.start()
    def child():
        global pinned
        answer = [pinned.is_pinned(), torch.empty(10).is_pinned(), pinned.sum().item()]
        del pinned
        return answer
    answers = [in_child(child) for _ in range(25)]
    stop.set()
    for thread in threads:
        thread.join()
    print(json.dumps(answers))
    """
    for begin in (run, run_started):
        assert begin(code) == [[True, False, 100]] * 25


def test_the_child_of_a_process_that_has_not_started_works():
    code = """
    torch.spyre.is_available(), torch.spyre.device_count(), torch.spyre.Stream()
    def work():
        return [torch.spyre._is_in_bad_fork(), torch.ones(100, device="spyre").cpu().sum().item()]
    children = [in_child(work), in_child(work)]
    print(json.dumps([children, work(), torch.spyre.is_initialized()]))
    """
    assert run(code) == [[[False, 100]] * 2, [False, 100], True]


def test_conversions_before_the_fork_do_not_hang_the_child():
    """They use the card's threads, though the device has not started."""
    code = """
    from torch_spyre import _C
    def convert():
        data = bytes(64 << 20)
        return len(_C._convert(data, _C.DataFormats.IEEE_FP16, _C.DataFormats.SEN169_FP16))
    def work():
        source = torch.randn(1000, 1000)
        return [convert(), torch.equal(source.to("spyre").cpu(), source)]
    print(json.dumps([convert(), in_child(work), work()]))
    """
    assert run(code) == [64 << 20, [64 << 20, True], [64 << 20, True]]


def test_a_grandchild_is_as_bad_as_a_child():
    code = """
    print(json.dumps(in_child(lambda: in_child(lambda: failure(tensor.cpu)))))
    """
    assert "forked subprocess" in run_started(code)


def test_the_child_of_a_forked_process_that_started_is_bad_only_there():
    code = """
    def start_and_fork():
        torch.zeros(3, device="spyre")
        return in_child(lambda: failure(lambda: torch.zeros(3, device="spyre")))
    inner = in_child(start_and_fork)
    print(json.dumps([inner[:12], torch.ones(3, device="spyre").cpu().tolist()]))
    """
    assert run(code) == ["RuntimeError", [1, 1, 1]]


def test_a_forked_child_ends_normally():
    """With atexit functions, garbage collection and destructors: a whole interpreter's end."""
    code = """
    import os, sys, torch
    tensor = torch.ones(100, device="spyre")
    event, stream = torch.spyre.Event(), torch.spyre.Stream()
    with stream:
        torch.spyre._sleep(0.3)
        event.record()
    child = os.fork()
    if child == 0:
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    print(tensor.cpu().sum().item())
    """
    result = fresh(code)
    assert (result.output, result.stderr) == ("100.0", "")


MULTIPROCESSING = """
import json, sys, torch, torch.multiprocessing as mp

def work(queue):
    try:
        queue.put(torch.ones(10, device="spyre").cpu().sum().item())
    except RuntimeError as error:
        queue.put(str(error))

def result(method):
    context = mp.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    answer = queue.get()
    process.join()
    return [answer, process.exitcode]

if __name__ == "__main__":
    before = result("fork")
    torch.zeros(3, device="spyre")
    print(json.dumps([before, result("fork"), result("spawn")]))
"""


def test_multiprocessing_fork_and_spawn():
    before, fork, spawn = fresh(MULTIPROCESSING).value
    assert before == [10, 0]
    assert "forked subprocess" in fork[0]
    assert fork[1] == 0
    assert spawn == [10, 0]


def test_data_loader_workers_do_not_mind_a_started_device():
    code = """
    import torch
    if __name__ == "__main__":
        torch.zeros(3, device="spyre")
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
        print([batch.to("spyre").cpu().tolist() for (batch,) in loader])
    """
    assert fresh(code).value == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_compile_worker_of_inductor_may_not_open_the_device():
    code = """
    import json, torch
    torch.manual_seed(1)
    try:
        torch.zeros(2, device="spyre")
        message = ""
    except RuntimeError as error:
        message = str(error)
    print(json.dumps([torch.spyre.is_available(), torch.spyre.is_initialized(),
                      torch.spyre._is_in_bad_fork(), message]))
    """
    *states, message = fresh(code, IS_INDUCTOR_SPAWNED_SUBPROCESS=1).value
    assert states == [True, False, True]
    assert "subprocess" in message
