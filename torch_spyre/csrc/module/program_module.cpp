// Programs and compiled kernels, and what compiled graphs do at every call. Where pybind's dispatch
// would take longer than the work, functions are Python's own kind of built-in.
#include <optional>
#include <utility>
#include <vector>

#include <pybind11/stl.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/python_numbers.h>

#include "module/bindings.h"
#include "ops/memory/spyre_layout_api.h"
#include "program/program_launch.h"
#include "runtime/spyre_runtime.h"
#include "tensor/spyre_tensor_impl.h"

namespace py = pybind11;

namespace spyre {
namespace {

using Dims = std::vector<std::int64_t>;

/// A program in the memory of one card.
struct LoadedProgram {
  LoadedProgram(const py::bytes& binary, std::int64_t on_device)
      : device(runtime::device_or_current(on_device)) {
    const std::string_view bytes = binary;
    const py::gil_scoped_release released;
    program =
        runtime::card(device).load_program(std::as_bytes(std::span(bytes.data(), bytes.size())));
  }

  void check_device(const at::Tensor& operand) const {
    TORCH_CHECK(is_spyre(operand) && operand.device().index() == device,
                "the kernel was loaded for spyre:", static_cast<int>(device), ", got a tensor on ",
                operand.device(), ".");
  }

  void launch(const std::vector<at::Tensor>& operands) const {
    for (const at::Tensor& operand : operands) check_device(operand);
    launch_program(program, operands);
  }

  c10::DeviceIndex device;
  std::shared_ptr<const card::Program> program;
  std::shared_ptr<const checks::Origin> origin = nullptr;  ///< of a compiled kernel
  std::size_t intermediates = 0;                           ///< operands that are memory for these
};

using BoundOperands = std::pair<LoadedProgram, std::vector<at::Tensor>>;
void launch_bound(const std::vector<BoundOperands>& launches);

/// What a compiled kernel was made for.
struct ExpectedOperand {
  SpyreTensorLayout layout;
  Dims stride;
  std::int64_t offset;

  bool meets(const at::Tensor& tensor) const {
    return tensor.storage_offset() == offset && tensor.strides() == stride &&
           layout_of(tensor) == layout;
  }
};

/// A compiled kernel: a program whose first operands are checked, and others that it has itself.
struct LoadedKernel {
  LoadedProgram program;
  std::vector<ExpectedOperand> expected;  ///< of the first arguments
  std::vector<at::Tensor> constants;      ///< operands after the arguments
  std::int64_t pool_bytes;  ///< of an operand before them, made for each launch; 0: none

  /// The first argument that is not what the kernel was made for, or -1: then it was launched.
  std::int64_t launch(const py::tuple& arguments) const {
    if (is_checked(program.device)) [[unlikely]]
      return launch_checked(arguments);
    auto memory = std::make_shared<OperandMemory>();
    if (pool_bytes > 0) memory->emplace_back();
    const std::int64_t misplaced = each_operand(
        arguments, [&](const at::Tensor& tensor) { memory->push_back(memory_of(tensor)); });
    if (misplaced >= 0) return misplaced;
    const py::gil_scoped_release released;
    c10::DataPtr pool;
    if (pool_bytes > 0) {
      pool = allocate_raw_data(static_cast<std::size_t>(pool_bytes), program.device);
      memory->front() = static_cast<const StorageContext*>(pool.get_context())->allocation;
    }
    launch_program(program.program, program.device, std::move(memory));
    return -1;
  }

  /// The program and its operands, to be launched together with others; nothing if an argument is
  /// not what the kernel was made for.
  std::optional<BoundOperands> bind(const py::tuple& arguments) const {
    std::vector<at::Tensor> operands;
    if (pool_bytes > 0)
      operands.push_back(empty_strided(pool_bytes, 1, c10::ScalarType::Char, program.device));
    const auto add = [&](const at::Tensor& tensor) { operands.push_back(tensor); };
    if (each_operand(arguments, add) >= 0) return std::nullopt;
    return std::pair{program, std::move(operands)};
  }

 private:
  std::int64_t launch_checked(const py::tuple& arguments) const {
    const std::int64_t misplaced = each_operand(arguments, [](const at::Tensor&) {});
    if (misplaced >= 0) return misplaced;
    launch_bound({*bind(arguments)});
    return -1;
  }

  /// use(tensor) of the arguments and the constants. Returns the first argument that is not as
  /// expected, or -1.
  template <typename Use>
  std::int64_t each_operand(const py::tuple& arguments, const Use& use) const {
    TORCH_CHECK(arguments.size() >= expected.size(), "the kernel takes ", expected.size(),
                " tensors, got ", arguments.size(), ".");
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      PyObject* const argument = PyTuple_GET_ITEM(arguments.ptr(), i);
      TORCH_CHECK_TYPE(THPVariable_Check(argument), "argument ", i, " of the kernel is no tensor.");
      const at::Tensor& tensor = THPVariable_Unpack(argument);
      program.check_device(tensor);
      if (i < expected.size() && !expected[i].meets(tensor)) return static_cast<std::int64_t>(i);
      use(tensor);
    }
    for (const at::Tensor& constant : constants) use(constant);
    return -1;
  }
};

void launch_bound(const std::vector<BoundOperands>& launches) {
  TORCH_CHECK_VALUE(!launches.empty(), "there is no program to launch.");
  std::vector<BoundProgram> bound;
  for (const auto& [program, operands] : launches) {
    TORCH_CHECK(program.device == launches.front().first.device,
                "programs of several cards cannot be launched together.");
    for (const at::Tensor& operand : operands) program.check_device(operand);
    bound.push_back({program.program, operands, program.origin, program.intermediates});
  }
  launch_together(launches.front().first.device, bound);
}

constexpr const char* kKernelCapsule = "spyre.kernel";

/// Of the kernel that the function holds; takes a tuple of arguments.
PyObject* launch_kernel(PyObject* capsule, PyObject* arguments) {
  HANDLE_TH_ERRORS
  const auto* const kernel =
      static_cast<const LoadedKernel*>(PyCapsule_GetPointer(capsule, kKernelCapsule));
  TORCH_CHECK_TYPE(PyTuple_Check(arguments), "a kernel takes a tuple of tensors.");
  return PyLong_FromLongLong(kernel->launch(py::reinterpret_borrow<py::tuple>(arguments)));
  END_HANDLE_TH_ERRORS
}

PyMethodDef launch_kernel_function{"launch", launch_kernel, METH_O, nullptr};

/// A built-in function that owns what it works with.
template <typename Held>
py::object holding(PyMethodDef& function, const char* name, Held held) {
  auto owned = std::make_unique<Held>(std::move(held));
  const py::capsule capsule(owned.get(), name, [](PyObject* object) {
    delete static_cast<Held*>(PyCapsule_GetPointer(object, PyCapsule_GetName(object)));
  });
  owned.release();
  return py::reinterpret_steal<py::object>(PyCFunction_NewEx(&function, capsule.ptr(), nullptr));
}

// ---------------------------------------------------------------------------------------- guards

constexpr const char* kLayoutCapsule = "spyre.layout";

/// Whether a tensor lies as the layout says that the function holds.
PyObject* lies_so(PyObject* capsule, PyObject* object) {
  HANDLE_TH_ERRORS
  const auto* const layout =
      static_cast<const SpyreTensorLayout*>(PyCapsule_GetPointer(capsule, kLayoutCapsule));
  if (!THPVariable_Check(object)) Py_RETURN_FALSE;
  const at::Tensor& tensor = THPVariable_Unpack(object);
  // A fake tensor says that it is on the device, and lies nowhere.
  return PyBool_FromLong(lies_on_card(tensor) && layout_of(tensor) == *layout);
  END_HANDLE_TH_ERRORS
}

PyMethodDef lies_so_function{"lies_so", lies_so, METH_O, nullptr};

py::object layout_guard(const SpyreTensorLayout& layout) {
  return holding(lies_so_function, kLayoutCapsule, layout);
}

// ------------------------------------------------------------------------------------ allocation

c10::DimVector dims_of(PyObject* tuple) {
  TORCH_CHECK_TYPE(PyTuple_Check(tuple), "sizes and strides are tuples.");
  c10::DimVector dims;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
    dims.push_back(THPUtils_unpackLong(PyTuple_GET_ITEM(tuple, i)));
  return dims;
}

PyObject* new_tensor(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(count == 4 && THPDtype_Check(arguments[2]),
                   "_empty_strided takes size, stride, dtype and device index.");
  const c10::ScalarType dtype = reinterpret_cast<THPDtype*>(arguments[2])->scalar_type;
  return THPVariable_Wrap(empty_strided(dims_of(arguments[0]), dims_of(arguments[1]), dtype,
                                        THPUtils_unpackLong(arguments[3])));
  END_HANDLE_TH_ERRORS
}

PyMethodDef new_tensor_function{"_empty_strided",
                                reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(new_tensor)),
                                METH_FASTCALL, nullptr};

}  // namespace

void bind_programs(py::module& module) {
  py::class_<LoadedProgram>(module, "_Program", "A program in the memory of one card.")
      .def(py::init<const py::bytes&, std::int64_t>(), py::arg("binary"), py::arg("device") = -1)
      .def_property_readonly("bytes",
                             [](const LoadedProgram& self) { return self.program->bytes(); })
      .def("launch", &LoadedProgram::launch, py::arg("operands"),
           py::call_guard<py::gil_scoped_release>());

  using Expectation = std::tuple<SpyreTensorLayout, Dims, std::int64_t>;
  py::class_<LoadedKernel>(module, "_Kernel", "A compiled kernel in the memory of one card.")
      .def(py::init([](const py::bytes& binary, std::int64_t device,
                       const std::vector<Expectation>& expected, std::vector<at::Tensor> constants,
                       std::int64_t pool_bytes, std::string name, std::string source) {
             LoadedKernel kernel{{binary, device}, {}, std::move(constants), pool_bytes};
             for (const auto& [layout, stride, offset] : expected)
               kernel.expected.push_back({layout, stride, offset});
             kernel.program.origin = std::make_shared<const checks::Origin>(
                 checks::Origin{std::move(name), std::move(source)});
             kernel.program.intermediates = pool_bytes > 0 ? 1 : 0;
             for (const at::Tensor& constant : kernel.constants)
               kernel.program.check_device(constant);
             return kernel;
           }),
           py::arg("binary"), py::arg("device"), py::arg("expected"), py::arg("constants"),
           py::arg("pool_bytes"), py::arg("name") = "a kernel", py::arg("source") = "")
      .def("launcher",
           [](const LoadedKernel& self) {
             return holding(launch_kernel_function, kKernelCapsule, self);
           })
      .def("bind", &LoadedKernel::bind, py::arg("arguments"));
  module.def("_launch_together", &launch_bound, py::arg("launches"),
             py::call_guard<py::gil_scoped_release>());

  module.def("_layout_guard", &layout_guard, py::arg("layout"));
  module.attr("_empty_strided") =
      py::reinterpret_steal<py::object>(PyCFunction_NewEx(&new_tensor_function, nullptr, nullptr));
}

}  // namespace spyre
