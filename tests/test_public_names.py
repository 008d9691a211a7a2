"""Names that code written for the public package imports: each is there, and what it should be."""

import importlib

import pytest
import torch
from kernels import add, check_result
from subprocesses import forked

import torch_spyre
from torch_spyre import _C

NATIVE = """
    start_runtime free_runtime device_count set_device current_device launch_kernel encode_constant
    ElementArrangement SpyreTensorLayout spyre_empty_with_layout empty_with_layout
    as_strided_with_layout reinterpret_tensor reinterpret_tensor_with_layout DataFormats
    get_spyre_tensor_layout set_spyre_tensor_layout get_downcast_warning set_downcast_warning
    get_elem_in_stick get_device_dtype manual_seed manual_seed_all get_rng_state set_rng_state
    initial_seed _get_default_generator copy_tensor get_stream_from_pool current_stream
    set_current_stream default_stream synchronize _SpyreStreamBase JobPlan prepare_kernel
    launch_jobplan _spyre_get_allocator_stats _spyre_reset_accumulated_stats _spyre_reset_peak_stats
"""

ELSEWHERE = {
    "torch_spyre": "streams memory profiler version constants spyre_hint",
    "torch_spyre.version": "__version__",
    "torch_spyre.constants": "DEVICE_NAME DISTRIBUTED_BACKEND_NAME",
    "torch_spyre.ops.fallbacks": "FallbackWarning",
    "torch_spyre.model_utils": "load_model_to_spyre",
    "torch_spyre.logging_config": """
        LogLevel initialize configure_python_logging get_log_level set_log_level enable disable
        get_log_file set_log_file get_effective_config get_output_config get_config_source
        list_components get_config_for_cpp""",
    "torch_spyre.execution.async_compile": "SpyreAsyncCompile",
    "torch_spyre.execution.kernel_runner": "launch_kernel",
    "torch_spyre._inductor": "config spyre_hint",
    "torch_spyre._inductor.propagate_named_dims": "declare_tensor_dim name_tensor_dims reset",
    "torch_spyre._inductor.errors": "Unsupported",
    "torch_spyre._inductor.constants": "IDENTITY_OP BATCH_MATMUL_OP FP8_E4M3_MAX",
    "torch_spyre._inductor.dtype_ops": "DtypeOpTable",
    "torch_spyre._inductor.op_spec": "OpSpec TensorArg LoopSpec UnimplementedOp",
    "torch_spyre._inductor.ir": "FixedTiledLayout SpyreConstantFallback",
    "torch_spyre._inductor.views": "compute_coordinates",
    "torch_spyre._inductor.passes": """
        CustomPreGradPasses CustomPrePasses CustomPostPasses CustomPreFusionPasses
        CustomPostFusionPasses CustomPreSchedulingPasses""",
    "torch_spyre._inductor.scratchpad.plan_solver": """
        LifetimeBoundBuffer MemoryPlanSolver GreedyLayoutSolver""",
    "torch_spyre._inductor.scratchpad.firstfit_bestfit_solver": """
        FirstFitLayoutSolver BestFitLayoutSolver""",
    "torch_spyre._inductor.config": """
        lx_planning co_optimizing_lx_planning hbm_planning chunk_large_tensors
        global_stick_optimizer allow_all_ops_in_lx_planning lx_boundary_clones dxp_lx_frac_avail
        sencores max_buckets min_default_granularity ignore_work_division_hints
        core_id_k_fast_emission bundle_symbolic_args unroll_loops layout_solver patch""",
    "torch": "spyre",
    "torch.Tensor": "device_tensor_layout _spyre_tensor_patched spyre is_spyre",
    "torch.nn.Module": "spyre",
    "torch.spyre": """
        _is_in_bad_fork manual_seed manual_seed_all get_rng_state set_rng_state initial_seed
        is_available is_initialized device_count current_device set_device _is_compiled memory
        get_amp_supported_dtype Stream stream current_stream default_stream synchronize _impl
        Scheduling GraphLowering Lowering Codegen Compile""",
    "torch.ops.spyre": """
        softplus layer_norm rms_norm exx2 layernormscale layernormnorm topkvalue topkindex gelu silu
        clamp empty logical_not copy_from_d2d overwrite overwrite_f restickify
        max_dim_int64_fallback min_dim_int64_fallback unfold reshape_via_cpu batched_matmul constant
        to_dtype_cpu qfp8ch quantize_fp8_with_scale dequantize_fp8_with_scale""",
}


@pytest.mark.parametrize("name", NATIVE.split())
def test_the_native_module_and_torch_spyre_have(name):
    scope: dict[str, object] = {}
    exec(f"from torch_spyre._C import {name}", scope)
    if hasattr(torch_spyre.device, name) and name in vars(torch_spyre.device):
        return  # torch.spyre has one that takes a user's ways to write a device
    assert getattr(torch.spyre, name) is scope[name]
    assert getattr(torch.spyre._impl, name) is scope[name]


@pytest.mark.parametrize(
    ("where", "name"),
    [(where, name) for where, names in ELSEWHERE.items() for name in names.split()],
)
def test_this_name_is_there(where, name):
    if where == "torch.ops.spyre":
        owner = torch.ops.spyre
    elif where in ("torch.Tensor", "torch.nn.Module"):
        owner = torch.Tensor if where == "torch.Tensor" else torch.nn.Module
    else:
        owner = importlib.import_module(where)
        if not hasattr(owner, name):
            importlib.import_module(f"{where}.{name}")
    assert hasattr(owner, name)


def test_names_that_nobody_has():
    with pytest.raises(AttributeError, match=r"torch_spyre\._C.*nothing"):
        _C.nothing  # noqa: B018
    with pytest.raises(ImportError):
        exec("from torch_spyre._C import nothing")


def test_the_configuration_is_an_attribute_without_inductor():
    code = """
        import sys, torch, torch_spyre
        import torch_spyre._inductor
        with torch_spyre._inductor.config.patch({"sencores": 4}):
            print(torch_spyre._inductor.config.sencores, "torch._inductor" in sys.modules)
    """
    assert forked(code).output == "4 False"


def test_doors_to_the_back_end_load_nothing_before_they_are_used():
    code = """
        import sys, torch
        print([name for name in sys.modules if name.startswith("torch_spyre.backend.job")])
    """
    assert forked(code).output == "[]"


def test_a_kernel_is_launched_by_its_directory(tmp_path):
    kernel = add()
    kernel.bundle().write(tmp_path)
    check_result(kernel, lambda args: _C.launch_kernel(str(tmp_path), args))
    check_result(kernel, lambda args: _C.launch_kernel(tmp_path, args))  # known by now


def test_a_directory_without_a_bundle(tmp_path):
    with pytest.raises(Exception, match=r"bundle\.mlir"):
        _C.launch_kernel(tmp_path / "nothing", [torch.ones(3, device="spyre")])


def test_an_empty_tensor_may_say_that_its_layout_is_kept():
    layout = torch.spyre.SpyreTensorLayout([4, 128], torch.float16)
    for memory_format in (torch.preserve_format, torch.contiguous_format):
        tensor = torch.empty(
            4, 128, dtype=torch.float16, device_layout=layout, memory_format=memory_format
        )
        assert tensor.device_tensor_layout() == layout
        assert tensor.is_contiguous()
    with pytest.raises(RuntimeError, match="memory format"):
        torch.empty(
            1, 2, 3, 4, dtype=torch.float16, device_layout=layout, memory_format=torch.channels_last
        )
