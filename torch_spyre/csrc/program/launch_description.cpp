#include "program/launch_description.h"

#include <mutex>
#include <sstream>
#include <string_view>

#include <ATen/record_function.h>
#include <c10/util/strides.h>
#include <pybind11/pybind11.h>

#include "runtime/spyre_stream.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tensor_impl.h"
#include "tensor/spyre_tiling.h"

namespace py = pybind11;

namespace spyre::checks {
namespace {

thread_local std::vector<std::string> tls_ops;  // that run on this thread, the innermost last

/// Names of ops are only there for those who listen.
at::CallbackHandle listen() {
  return at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& op) -> std::unique_ptr<at::ObserverContext> {
            tls_ops.emplace_back(op.name());
            return nullptr;
          },
          [](const at::RecordFunction&, at::ObserverContext*) {
            if (!tls_ops.empty()) tls_ops.pop_back();
          })
          .scopes({at::RecordScope::FUNCTION}));
}

std::mutex listening_mutex;
std::size_t checking_streams = 0;  // guarded by listening_mutex
at::CallbackHandle listening;      // the same; while there are such

void end() {
  const std::lock_guard lock(listening_mutex);
  if (--checking_streams > 0) return;
  anywhere = false;
  at::removeCallback(listening);
}

/// Not the user's: PyTorch, this package, generated code.
bool is_library(std::string_view file) {
  for (const char* const part : {"/torch/", "/torch_spyre/", "torchinductor", "/contextlib.py"})
    if (file.find(part) != std::string_view::npos) return true;
  return file.starts_with('<');
}

/// The line of the user's that runs on this thread, or nothing.
std::string user_line() {
  if (!Py_IsInitialized()) return {};
  const py::gil_scoped_acquire locked;
  py::object frame =
      py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame) {
    auto* const raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const py::object code =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const auto file = code.attr("co_filename").cast<std::string>();
    if (!is_library(file)) return file + ':' + std::to_string(PyFrame_GetLineNumber(raw));
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return {};
}

std::string current_op() { return tls_ops.empty() ? "a program" : tls_ops.back(); }

/// Places of elements that lie so, in row-major order. None if one has no place.
std::vector<card::StrideInfo> places(const SpyreTensorLayout& layout, c10::IntArrayRef size,
                                     c10::IntArrayRef stride, std::int64_t offset) {
  const Tiling tiling(layout);
  std::vector<Nest> nests;
  const c10::DimVector numbers = c10::contiguous_strides(size);
  if (!tiling.place(Nest::over(size, stride, offset, numbers), nests)) return {};
  for (const LoopDim& replica : tiling.replicas())
    for (Nest& nest : nests) nest.dims.insert(nest.dims.begin(), replica);
  return descriptor_loops(nests, /*tiled_is_destination=*/true);
}

card::OperandDescription describe_tensor(const at::Tensor& tensor) {
  card::OperandDescription description;
  const StorageContext& context = storage_context(tensor);
  const SpyreTensorLayout& layout = layout_of(tensor);
  std::ostringstream name;
  name << dtype_name(tensor.scalar_type()) << tensor.sizes();
  description.name = name.str();
  description.size.assign(tensor.sizes().begin(), tensor.sizes().end());
  description.format = layout.device_dtype;
  if (is_byte_view(tensor) || context.raw) return description;
  description.view = places(layout, tensor.sizes(), tensor.strides(), tensor.storage_offset());
  // With a layout of its own, a tensor uses memory that is nothing else's.
  if (!has_own_layout(tensor)) description.storage = places(layout, {context.numel}, {1}, 0);
  return description;
}

}  // namespace

bool set(c10::Stream stream, bool on) {
  card::Stream& card = streams::card_stream(stream);
  const bool before = card.checks();
  if (before == on) return before;
  if (on) begin();
  card.set_checks(on);
  if (!on) end();
  return before;
}

void begin() {
  const std::lock_guard lock(listening_mutex);
  if (checking_streams++ == 0) listening = listen();
  anywhere = true;
}

card::LaunchDescription describe(c10::ArrayRef<at::Tensor> operands, const Origin* origin,
                                 std::size_t first) {
  card::LaunchDescription description;
  description.op = origin ? origin->kernel : current_op();
  description.source = origin && !origin->source.empty() ? origin->source : user_line();
  for (std::size_t i = 0; i < operands.size(); ++i) {
    description.operands.push_back(i < first ? card::OperandDescription{}
                                             : describe_tensor(operands[i]));
    if (i < first) {
      description.operands.back().name = "intermediates";
      description.operands.back().scratch = true;
    }
  }
  return description;
}

std::string caller() {
  const std::string line = user_line();
  return current_op() + (line.empty() ? "" : " at " + line);
}

}  // namespace spyre::checks
