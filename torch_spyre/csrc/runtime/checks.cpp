#include "runtime/checks.h"

#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include <ATen/record_function.h>
#include <pybind11/pybind11.h>

#include "runtime/spyre_stream.h"

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

std::string current_op() { return tls_ops.empty() ? "a program" : tls_ops.back(); }

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

std::string caller() {
  const std::string line = user_line();
  return current_op() + (line.empty() ? "" : " at " + line);
}

}  // namespace spyre::checks
