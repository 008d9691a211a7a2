"""Tensors on a Spyre card: allocate, look at the layout, transfer, come back right.

Run with ``python examples/tensor_allocate.py`` in an environment that has torch-spyre. No card is
needed.
"""

import torch


def main() -> None:
    print(f"{torch.spyre.device_count()} x {torch.spyre.get_device_name()}")

    host = torch.randn(512, 240, dtype=torch.float16)
    x = host.to("spyre")
    print(f"\na {tuple(x.shape)} {x.dtype} tensor on {x.device}, on the card laid out as")
    print(f"  {x.device_tensor_layout()}")

    back = x.cpu()
    worst = ((back - host).abs() / host.abs().clamp_min(1e-3)).max().item()
    print(f"\nthere and back: largest relative change {worst:.2e}")
    print("(DLFloat16 has 9 fraction bits, IEEE half has 10: at most 2**-10 = 9.77e-04)")

    view = x[100:104:2, ::60]
    print(f"\na view of it, read in place: x[100:104:2, ::60] =\n{view}")

    integers = torch.arange(1000, dtype=torch.int32, device="spyre").reshape(10, 100)
    print(f"\nintegers are exact: {torch.equal(integers.t().cpu().t(), integers.cpu())}")

    counters = torch.spyre.counters()
    print(
        f"\nthe card moved {counters.bytes_to_card} bytes in and {counters.bytes_to_host} out;"
        f" a real one would have taken {counters.modelled_ns / 1e3:.1f} us"
    )
    free, total = torch.spyre.mem_get_info()
    print(
        f"memory: {torch.spyre.memory_allocated()} bytes in use, {free / 2**30:.1f} of"
        f" {total / 2**30:.1f} GiB free"
    )


if __name__ == "__main__":
    main()
