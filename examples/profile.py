"""Where a model's time goes: on the card, by op and layer, and on the host.

Run with ``python examples/profile.py [PAGE.html]`` in an environment that has
torch-spyre[models]; no card is needed. ``python -m torch_spyre explain SCRIPT`` does the first
part for any script.
"""

import sys

if __name__ == "profile":
    # Python's own module of this name is looked for beside the examples first, and found here.
    beside = sys.path.pop(0)
    del sys.modules["profile"]
    import profile  # noqa: F401

    sys.path.insert(0, beside)


def main() -> None:
    import torch
    from torch.profiler import ProfilerActivity

    import torch_spyre
    from torch_spyre import zoo

    granite = zoo.get("granite").build().to("spyre", torch.float16)
    tokens = torch.randint(3, 500, (1, 64), device="spyre")
    compiled = torch.compile(granite, fullgraph=True)

    with torch.inference_mode():
        report = torch_spyre.explain(compiled, input_ids=tokens, use_cache=False)
        print(report)  # the card, as it would be: modelled time, traffic, what ops wait for
        for path in sys.argv[1:]:
            report.html(path)
            print(f"{path}: the same with charts")

        with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(5):
                compiled(input_ids=tokens, use_cache=False)
            torch.spyre.synchronize()
    print("\nOn this machine: what PyTorch's profiler sees of five calls")
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=8))


if __name__ == "__main__":
    main()
