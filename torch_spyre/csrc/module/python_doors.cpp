// A function that is replaced from Python is another object for everybody: for a TorchFunctionMode
// that asks `func is torch.empty`, for the tables of Dynamo and torch.overrides, for whoever
// imported it before. Here the objects stay what they are. A built-in function holds a pointer to
// its definition; it gets one that differs in what is called, which looks whether the card is meant
// and hands all else to the original. PyTorch's own definitions are not written to.
#include <torch/csrc/Device.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/utils/device_lazy_init.h>
#include <torch/csrc/utils/pybind.h>

#include "module/bindings.h"
#include "runtime/spyre_runtime.h"

namespace py = pybind11;

namespace spyre {
namespace {

/// What a function was, and what it has become. Lives as long as the process, as the function does.
struct Door {
  PyMethodDef definition{};
  PyCFunction original = nullptr;
  PyObject* act = nullptr;  // the Python function that knows about the card

  PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) const {
    return reinterpret_cast<PyCFunctionWithKeywords>(reinterpret_cast<void*>(original))(self, args,
                                                                                        kwargs);
  }
};

template <typename Function>
PyCFunction as_function(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

void open(Door& door, const py::object& function, PyCFunction ours, int flags,
          const py::object& act) {
  PyObject* const object = function.ptr();
  const bool method = Py_IS_TYPE(object, &PyMethodDescr_Type);
  TORCH_CHECK_TYPE(method || PyCFunction_CheckExact(object), "expected a built-in function, got ",
                   py::repr(function).cast<std::string>());
  PyMethodDef*& definition = method ? reinterpret_cast<PyMethodDescrObject*>(object)->d_method
                                    : reinterpret_cast<PyCFunctionObject*>(object)->m_ml;
  if (definition == &door.definition) return;
  TORCH_CHECK_TYPE((definition->ml_flags & ~METH_STATIC) == flags, definition->ml_name,
                   "() is called in another way than this version of PyTorch calls it.");
  door.definition = *definition;
  door.original = definition->ml_meth;
  door.definition.ml_meth = ours;
  door.act = py::object(act).release().ptr();
  definition = &door.definition;
}

// ------------------------------------------------------ device_layout=, names of dimensions

Door empty_door, to_door, cpu_door;

/// An attribute of tensors that stays with their copies; null as long as no tensor has it.
PyObject* kept_attribute = nullptr;

/// What a move returns, with the attribute of what was moved.
PyObject* keeping(PyObject* self, PyObject* moved) {
  if (kept_attribute == nullptr || moved == nullptr || moved == self) return moved;
  PyObject* const attributes = PyObject_GenericGetDict(self, nullptr);
  PyObject* const value =
      attributes ? PyDict_GetItemWithError(attributes, kept_attribute) : nullptr;
  if (value == nullptr ? PyErr_Occurred() != nullptr
                       : PyObject_SetAttr(moved, kept_attribute, value) < 0)
    Py_CLEAR(moved);
  Py_XDECREF(attributes);
  return moved;
}

/// 1 if there is a device_layout among the keywords, 0 if not, -1 with an error.
int has_layout(PyObject* kwargs) {
  static PyObject* const keyword = PyUnicode_InternFromString("device_layout");
  return kwargs == nullptr ? 0 : PyDict_Contains(kwargs, keyword);
}

PyObject* empty(PyObject* self, PyObject* args, PyObject* kwargs) {
  const int found = has_layout(kwargs);
  if (found < 0) return nullptr;
  return found ? PyObject_Call(empty_door.act, args, kwargs) : empty_door.call(self, args, kwargs);
}

PyObject* to(PyObject* self, PyObject* args, PyObject* kwargs) {
  const int found = has_layout(kwargs);
  if (found < 0) return nullptr;
  if (!found) return keeping(self, to_door.call(self, args, kwargs));
  HANDLE_TH_ERRORS
  const auto all = py::make_tuple(py::handle(self)) + py::reinterpret_borrow<py::tuple>(args);
  return keeping(self, PyObject_Call(to_door.act, all.ptr(), kwargs));
  END_HANDLE_TH_ERRORS
}

PyObject* cpu(PyObject* self, PyObject* args, PyObject* kwargs) {
  return keeping(self, cpu_door.call(self, args, kwargs));
}

// --------------------------------------------------------------------------- Module.to

Door parse_to_door;

/// Module.to asks it where to before it moves anything.
PyObject* parse_to(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* parsed = parse_to_door.call(self, args, kwargs);
  if (parsed == nullptr || !PyTuple_Check(parsed) || PyTuple_GET_SIZE(parsed) == 0) return parsed;
  PyObject* const device = PyTuple_GET_ITEM(parsed, 0);
  if (!THPDevice_Check(device) || !reinterpret_cast<THPDevice*>(device)->device.is_privateuseone())
    return parsed;
  PyObject* const done = PyObject_CallNoArgs(parse_to_door.act);
  if (done == nullptr) Py_CLEAR(parsed);
  Py_XDECREF(done);
  return parsed;
}

// ---------------------------------------------------------------------------- byteswap

Door byteswap_door;

/// PyTorch dereferences the data pointer, whatever the device.
PyObject* byteswap(PyObject* self, PyObject* args) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(!THPStorage_Check(self) ||
                  THPStorage_Unpack(self).device_type() != c10::DeviceType::PrivateUse1,
              "byteswap() works on host memory: use storage.cpu() first");
  return byteswap_door.original(self, args);
  END_HANDLE_TH_ERRORS
}

// -------------------------------------------------------------------------- safe_open

newfunc original_open = nullptr;
PyObject* open_for_card = nullptr;

bool is_card(PyObject* device) {
  if (device == nullptr) return false;
  if (THPDevice_Check(device))
    return reinterpret_cast<THPDevice*>(device)->device.is_privateuseone();
  if (!PyUnicode_Check(device)) return false;
  const char* const text = PyUnicode_AsUTF8(device);
  return text != nullptr && std::string_view(text).starts_with("spyre");
}

PyObject* safe_open(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject* device = kwargs ? PyDict_GetItemString(kwargs, "device") : nullptr;
  if (device == nullptr && PyTuple_GET_SIZE(args) > 2) device = PyTuple_GET_ITEM(args, 2);
  if (!is_card(device)) {
    PyErr_Clear();
    return original_open(type, args, kwargs);
  }
  PyObject* const opened = PyObject_Call(open_for_card, args, kwargs);
  if (opened != Py_NotImplemented) return opened;
  Py_DECREF(opened);
  return original_open(type, args, kwargs);
}

}  // namespace

void bind_doors(py::module& module) {
  // PyTorch would call torch.spyre._lazy_init() not only before it uses the device, but whenever
  // somebody asks for the accelerator's current stream, as Dynamo does for every function that it
  // compiles. The device starts by itself.
  torch::utils::set_requires_device_init(c10::DeviceType::PrivateUse1, false);

  constexpr int kKeywords = METH_VARARGS | METH_KEYWORDS;
  module.def("_open_layout_doors", [=](const py::object& torch_empty, const py::object& tensor_to,
                                       const py::object& make, const py::object& move) {
    open(empty_door, torch_empty, as_function(&empty), kKeywords, make);
    open(to_door, tensor_to, as_function(&to), kKeywords, move);
  });
  module.def("_keep_attribute", [=](const py::object& tensor_cpu, const py::str& name) {
    open(cpu_door, tensor_cpu, as_function(&cpu), kKeywords, py::none());
    kept_attribute = py::object(name).release().ptr();
  });
  module.def("_open_module_door", [=](const py::object& function, const py::object& act) {
    open(parse_to_door, function, as_function(&parse_to), kKeywords, act);
  });
  module.def("_open_byteswap_door", [](const py::object& function) {
    open(byteswap_door, function, as_function(&byteswap), METH_VARARGS, py::none());
  });
  module.def("_open_safetensors_door", [](const py::object& type, const py::object& act) {
    TORCH_CHECK_TYPE(PyType_Check(type.ptr()), "expected the type safe_open");
    auto* const opened = reinterpret_cast<PyTypeObject*>(type.ptr());
    if (opened->tp_new == &safe_open) return;
    original_open = opened->tp_new;
    open_for_card = py::object(act).release().ptr();
    opened->tp_new = &safe_open;
  });
  module.def("_on_first_use", [](const py::function& act) {
    runtime::on_first_use([held = py::object(act).release()] {
      const py::gil_scoped_acquire acquired;
      held();
    });
  });
}

}  // namespace spyre
