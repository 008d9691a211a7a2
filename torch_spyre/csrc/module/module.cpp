// torch_spyre._C: what Python sees of the native runtime. torch_spyre/_C.pyi describes it.
#include <chrono>
#include <functional>
#include <thread>

#include <pybind11/stl.h>
#include <torch/csrc/Event.h>
#include <torch/csrc/utils/pybind.h>

#include "fallback/fallback.h"
#include "module/bindings.h"
#include "ops/memory/spyre_copy.h"
#include "ops/memory/spyre_layout_api.h"
#include "ops/random/spyre_generator.h"
#include "runtime/checks.h"
#include "runtime/logging.h"
#include "runtime/spyre_device_enum.h"
#include "runtime/spyre_event.h"
#include "runtime/spyre_pinned.h"
#include "runtime/spyre_runtime.h"
#include "runtime/spyre_stream.h"
#include "tensor/spyre_allocator.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_tensor_impl.h"
#include "tensor/spyre_tiling.h"

namespace py = pybind11;
using namespace py::literals;

namespace spyre {
namespace {

/// An argument: -1 is the current device, others are checked before they are cut to an index.
struct Device {
  c10::DeviceIndex index = 0;

  operator c10::DeviceIndex() const { return index; }
  card::Card& card() const { return runtime::card(index); }
};

}  // namespace
}  // namespace spyre

template <>
struct pybind11::detail::type_caster<spyre::Device> {
  PYBIND11_TYPE_CASTER(spyre::Device, const_name("int"));

  bool load(handle source, bool convert) {
    make_caster<std::int64_t> number;
    if (!number.load(source, convert)) return false;
    value.index = spyre::runtime::device_or_current(cast_op<std::int64_t>(number));
    return true;
  }
};

namespace spyre {
namespace {

using Released = py::call_guard<py::gil_scoped_release>;
using Dims = std::vector<std::int64_t>;

void bind_formats(py::module& module) {
  py::enum_<DataFormat> formats(module, "DataFormats",
                                "Element formats of host and device memory.");
  for (const FormatInfo& info : kFormats) formats.value(info.name, info.format);
  formats.def(
      "elems_per_stick", [](DataFormat format) { return format_info(format).elems_per_stick; },
      "Elements in one 128-byte stick; 0 if no device tensor can have this format.");

  py::enum_<ElementArrangement>(module, "ElementArrangement",
                                "Order of elements inside sticks; always STANDARD to readers.")
      .value("STANDARD", ElementArrangement::STANDARD)
      .value("DL16_TO_FP32", ElementArrangement::DL16_TO_FP32)
      .value("QFP8CH", ElementArrangement::QFP8CH)
      .value("EXX2", ElementArrangement::EXX2);

  module.def("get_device_dtype", &device_format);
  module.def("get_elem_in_stick", [](c10::ScalarType dtype) {
    return format_info(device_format(dtype)).elems_per_stick;
  });
  module.def("encode_constant", &encode_constant, py::arg("value"), py::arg("format"));
  module.def("_follows_strides", &follows_strides, py::arg("layout"));
  module.def(
      "_convert",
      [](const py::bytes& data, DataFormat src, DataFormat dst, int narrow) {
        const std::string_view from = data;
        const FormatInfo &in = format_info(src), &out = format_info(dst);
        TORCH_CHECK_VALUE(in.bits > 0 && out.bits > 0, "no conversion from ", in.name, " to ",
                          out.name, ".");
        TORCH_CHECK_VALUE(narrow >= 0 && narrow <= 2, "narrow is 0 (none), 1 (bool) or 2 (uint8).");
        const std::size_t count = from.size() / (in.bits / 8);
        std::string to(count * (out.bits / 8), '\0');
        {
          const py::gil_scoped_release released;
          runtime::platform().convert(src, from.data(), dst, to.data(), count,
                                      static_cast<card::Narrow>(narrow));
        }
        return py::bytes(to);
      },
      py::arg("data"), py::arg("src"), py::arg("dst"), py::arg("narrow") = 0);
  module.def("get_downcast_warning", &get_downcast_warning);
  module.def("set_downcast_warning", &set_downcast_warning, py::arg("enabled"));
}

/// Python can make an object without initialising it.
const SpyreTensorLayout& checked(const SpyreTensorLayout& layout) {
  TORCH_CHECK_VALUE(!layout.device_size.empty(), "this SpyreTensorLayout was never initialised.");
  return layout;
}

/// Versions 1 (had a dim_map) and 2 (no arrangement) were written by earlier implementations.
SpyreTensorLayout layout_from_state(const py::tuple& state) {
  const auto version = state[0].cast<int>();
  if (version == 1)
    return {state[1].cast<Dims>(), state[3].cast<Dims>(), state[4].cast<DataFormat>()};
  if (version == 2)
    return {state[1].cast<Dims>(), state[2].cast<Dims>(), state[3].cast<DataFormat>()};
  TORCH_CHECK_VALUE(version == 3, "SpyreTensorLayout was pickled with version ", version,
                    "; this package reads versions 1 to 3.");
  return {state[1].cast<Dims>(), state[2].cast<Dims>(), state[3].cast<DataFormat>(),
          state[4].cast<ElementArrangement>()};
}

void bind_layouts(py::module& module) {
  using Layout = SpyreTensorLayout;
  const auto of = [](auto member) {
    return [member](const Layout& layout) { return std::invoke(member, checked(layout)); };
  };
  py::class_<Layout>(module, "SpyreTensorLayout", "Where a tensor's elements lie in device memory.")
      .def(py::init<c10::IntArrayRef, c10::ScalarType>(), py::arg("host_size"), py::arg("dtype"))
      .def(py::init<c10::IntArrayRef, c10::IntArrayRef, c10::ScalarType, c10::IntArrayRef,
                    ElementArrangement>(),
           py::arg("host_size"), py::arg("host_strides"), py::arg("dtype"), py::arg("dim_order"),
           py::arg("element_arrangement") = ElementArrangement::STANDARD)
      .def(py::init<Dims, Dims, DataFormat, ElementArrangement>(), py::arg("device_size"),
           py::arg("stride_map"), py::arg("device_dtype"),
           py::arg("element_arrangement") = ElementArrangement::STANDARD)
      .def_property_readonly("device_size", of(&Layout::device_size))
      .def_property_readonly("stride_map", of(&Layout::stride_map))
      .def_property_readonly("device_dtype", of(&Layout::device_dtype))
      .def_property_readonly("element_arrangement", of(&Layout::element_arrangement))
      .def("elems_per_stick", of(&Layout::elems_per_stick))
      .def("device_bytes", [](const Layout& layout) { return layout.bytes(); })
      .def("with_element_arrangement",
           [](Layout layout, ElementArrangement arrangement) {
             layout.element_arrangement = arrangement;
             return layout;
           })
      .def(
          "__eq__", [](const Layout& a, const Layout& b) { return a == b; }, py::is_operator())
      .def("__hash__", of(&Layout::hash))
      .def("__repr__", of(&Layout::str))
      .def("__str__", of(&Layout::str))
      .def("__copy__", [](const Layout& layout) { return layout; })
      .def("__deepcopy__", [](const Layout& layout, const py::dict&) { return layout; })
      .def(py::pickle(
          [](const Layout& layout) {
            return py::make_tuple(3, layout.device_size, layout.stride_map, layout.device_dtype,
                                  layout.element_arrangement);
          },
          &layout_from_state));

  module.def("get_spyre_tensor_layout", &get_layout, py::arg("tensor"));
  module.def(
      "_find_layout",
      [](const at::Tensor& tensor) {
        return lies_on_card(tensor) ? std::optional(layout_of(tensor)) : std::nullopt;
      },
      py::arg("tensor"));
  module.def("_turn_weights", &turn_weights, py::arg("turned"));
  module.def("set_spyre_tensor_layout", &set_layout, py::arg("tensor"), py::arg("layout"));
  module.def(
      "spyre_empty_with_layout",
      [](c10::IntArrayRef size, c10::IntArrayRef stride, c10::ScalarType dtype,
         const Layout& layout) { return empty_strided_with_layout(size, stride, dtype, layout); },
      py::arg("size"), py::arg("stride"), py::arg("dtype"), py::arg("layout"));
  module.def("empty_with_layout", &empty_with_layout, py::arg("size"), py::arg("layout"),
             py::arg("dtype"), py::arg("device") = py::none(), py::arg("pin_memory") = false,
             py::arg("memory_format") = py::none());
  module.def("as_strided_with_layout", &as_strided_with_layout, py::arg("tensor"), py::arg("size"),
             py::arg("stride"), py::arg("storage_offset"), py::arg("layout"));
  module.def("reinterpret_tensor", &reinterpret_tensor, py::arg("tensor"), py::arg("size"),
             py::arg("stride"), py::arg("offset_increment") = 0);
  module.def("reinterpret_tensor_with_layout", &reinterpret_tensor_with_layout, py::arg("tensor"),
             py::arg("size"), py::arg("stride"), py::arg("offset_increment"), py::arg("layout"));
}

py::dict describe(const card::DataConversion& conversion) {
  py::list loops;
  for (const card::StrideInfo& info : conversion.loops)
    loops.append(py::dict("size_"_a = info.size, "stride_src_"_a = info.stride_src,
                          "stride_dst_"_a = info.stride_dst, "offset_src_"_a = info.offset_src,
                          "offset_dst_"_a = info.offset_dst));
  return py::dict("dci_dsName_"_a = conversion.name, "isHostToSen_"_a = conversion.host_to_device,
                  "dataformat_src_"_a = conversion.src, "dataformat_dst_"_a = conversion.dst,
                  "dcsi_"_a = loops, "input_shape_"_a = conversion.input_shape,
                  "output_shape_"_a = conversion.output_shape);
}

void bind_copies(py::module& module) {
  module.def("copy_tensor", &copy_from, py::arg("self"), py::arg("dst"),
             py::arg("non_blocking") = false, Released());
  module.def(
      "_data_conversion_info",
      [](const at::Tensor& source, const at::Tensor& target) {
        TORCH_CHECK_VALUE(source.sizes() == target.sizes(), "sizes differ.");
        const bool ways =
            (source.is_cpu() && is_spyre(target)) || (is_spyre(source) && target.is_cpu());
        TORCH_CHECK_VALUE(
            ways && source.layout() == c10::kStrided && target.layout() == c10::kStrided,
            "one strided tensor must be on the CPU, the other on the card.");
        return describe(is_spyre(target) ? conversion_to_card(source, target)
                                         : conversion_to_host(source, target));
      },
      py::arg("source"), py::arg("target"));
}

void bind_devices(py::module& module) {
  module.def("start_runtime", &runtime::start, Released());
  module.def("free_runtime", &runtime::drain, Released());
  module.def("_shutdown", &runtime::shutdown, Released());
  module.def("_is_initialized", &runtime::started);
  module.def("_is_in_bad_fork", &runtime::in_bad_fork);
  module.def("_mark_bad_fork", &runtime::mark_bad_fork);
  module.def("device_count", [] { return visible_devices().cards.size(); });
  module.def("_scratchpads_survive", [] { return visible_devices().mode != card::Mode::virtual_; });
  module.def("_is_available", [] { return visible_device_count() > 0; });
  module.def("set_device", [](Device device) { runtime::set_device(device); });
  module.def("_check_device_index", &runtime::check_device_index);
  module.def("current_device", [] { return static_cast<int>(runtime::current_device()); });

  module.def(
      "_properties",
      [](Device device) {
        const card::Properties& properties = device.card().properties();
        return py::dict("name"_a = properties.name, "type"_a = properties.type,
                        "multi_processor_count"_a = properties.cores,
                        "total_memory"_a = properties.memory_bytes,
                        "lx_bytes_per_core"_a = properties.lx_bytes_per_core);
      },
      py::arg("device"));
  module.def(
      "_counters", [](Device device) { return counters_dict(device.card().counters()); },
      py::arg("device"));
  module.def(
      "_reset_card", [](Device device) { device.card().reset(); }, py::arg("device"), Released());
}

void bind_fallbacks(py::module& module) {
  module.def("_set_fallback_hook", &fallback::set_hook);
  module.def("_fallback_counts", &fallback::counts);
  module.def("_reset_fallback_counts", &fallback::reset_counts);
  module.def("_set_debug_log", set_debug_enabled);
  module.def("_set_fallback_error", [](bool error) {
    fallback::set_mode(error ? fallback::Mode::error : fallback::Mode::warn);
  });
}

/// As torch.cuda.host_memory_stats() has them.
std::map<std::string, std::int64_t> host_memory_stats() {
  const at::HostStats stats = host_allocator().get_stats();
  std::map<std::string, std::int64_t> result{{"num_host_alloc", stats.num_host_alloc},
                                             {"num_host_free", stats.num_host_free}};
  for (const auto& [name, stat] : {std::pair{"active_requests", &stats.active_requests},
                                   std::pair{"active_bytes", &stats.active_bytes},
                                   std::pair{"allocations", &stats.allocations},
                                   std::pair{"allocated_bytes", &stats.allocated_bytes}}) {
    const std::string key = name;
    result[key + ".current"] = stat->current;
    result[key + ".peak"] = stat->peak;
    result[key + ".allocated"] = stat->allocated;
    result[key + ".freed"] = stat->freed;
  }
  for (const auto& [name, stat] : {std::pair{"host_alloc_time", &stats.host_alloc_time},
                                   std::pair{"host_free_time", &stats.host_free_time}}) {
    const std::string key = name;
    result[key + ".total"] = stat->total;
    result[key + ".max"] = stat->max;
    result[key + ".min"] = stat->min;
    result[key + ".count"] = stat->count;
    result[key + ".avg"] = stat->count ? stat->total / stat->count : 0;
  }
  return result;
}

void bind_memory(py::module& module) {
  module.def(
      "_spyre_get_allocator_stats",
      [](Device device) {
        const auto stats = SpyreAllocator::get().getDeviceStats(device);
        return py::dict("allocated_bytes.all.current"_a = stats.allocated_bytes[0].current,
                        "allocation.all.current"_a = stats.allocation[0].current);
      },
      py::arg("device"));
  module.def("_spyre_reset_accumulated_stats",
             [](Device device) { SpyreAllocator::get().resetAccumulatedStats(device); });
  module.def("_spyre_reset_peak_stats",
             [](Device device) { SpyreAllocator::get().resetPeakStats(device); });
  module.def(
      "_memory_info",
      [](Device device) {
        const card::MemoryInfo info = [&] {
          const py::gil_scoped_release released;  // asks the kernel about every page
          return device.card().memory_info(card::MemoryKind::tensor);
        }();
        return py::dict("capacity"_a = info.capacity, "free"_a = info.free,
                        "largest_free_block"_a = info.largest_free_block,
                        "allocations"_a = info.allocations, "backed"_a = info.backed);
      },
      py::arg("device"));
  module.def("_host_memory_stats", &host_memory_stats);
  module.def("_reset_accumulated_host_memory_stats",
             [] { host_allocator().reset_accumulated_stats(); });
  module.def("_reset_peak_host_memory_stats", [] { host_allocator().reset_peak_stats(); });
}

/// Who draws numbers holds the generator and may have something to tell Python meanwhile.
void bind_random(py::module& module) {
  module.def(
      "manual_seed",
      [](std::uint64_t seed, Device device) {
        at::Generator generator = default_generator(device);
        const std::lock_guard lock(generator.mutex());
        generator.set_current_seed(seed);
      },
      py::arg("seed"), py::arg("device") = -1, Released());
  module.def("manual_seed_all", &seed_all, py::arg("seed"), Released());
  module.def(
      "get_rng_state", [](Device device) { return default_generator(device).get_state(); },
      py::arg("device") = -1);
  module.def(
      "set_rng_state",
      [](const at::Tensor& state, Device device) {
        at::Generator generator = default_generator(device);
        const std::lock_guard lock(generator.mutex());
        generator.set_state(state);
      },
      py::arg("state"), py::arg("device") = -1, Released());
  module.def(
      "initial_seed", [](Device device) { return default_generator(device).current_seed(); },
      py::arg("device") = -1);
  module.def(
      "_get_default_generator", [](Device device) { return default_generator(device); },
      py::arg("device") = -1);
}

/// The handle behind a torch.Event of this device; null if it was never recorded.
void* event_handle(const py::object& object) {
  TORCH_CHECK_TYPE(THPEvent_Check(object.ptr()), "expected a torch.Event, got ",
                   py::repr(object).cast<std::string>());
  const c10::Event& event = reinterpret_cast<THPEvent*>(object.ptr())->event;
  TORCH_CHECK_VALUE(event.device_type() == c10::DeviceType::PrivateUse1,
                    "expected an event of a spyre device, got one of ", event.device_type(), ".");
  return event.eventId();
}

void bind_streams(py::module& module) {
  const auto index = [](const std::optional<c10::Device>& device) {
    TORCH_CHECK_VALUE(!device || device->type() == c10::DeviceType::PrivateUse1,
                      "expected a spyre device, got ", *device, ".");
    return device ? device->index() : static_cast<c10::DeviceIndex>(-1);
  };
  module.def(
      "_get_stream_from_pool",
      [=](std::optional<c10::Device> device, int priority) {
        return streams::from_pool(index(device), priority);
      },
      py::arg("device") = py::none(), py::arg("priority") = 0);
  module.def(
      "_current_stream",
      [=](std::optional<c10::Device> device) { return streams::current(index(device)); },
      py::arg("device") = py::none());
  module.def(
      "_default_stream",
      [=](std::optional<c10::Device> device) { return streams::default_stream(index(device)); },
      py::arg("device") = py::none());
  module.def("set_current_stream", [](c10::Stream stream) { return streams::exchange(stream); });
  module.def(
      "_set_stream_checks", [](c10::Stream stream, bool on) { return checks::set(stream, on); },
      py::arg("stream"), py::arg("on"));
  module.def(
      "_synchronize",
      [=](std::optional<c10::Device> device) {
        device ? streams::synchronize_device(index(device)) : streams::synchronize_all();
      },
      py::arg("device") = py::none(), Released());
  module.def(
      "_sleep",
      [](double seconds) {
        streams::current_card_stream(runtime::current_device()).host_callback([seconds] {
          std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        });
      },
      py::arg("seconds"), Released());
  module.def("_elapsed_ms", [](const py::object& start, const py::object& end) {
    void *first = event_handle(start), *last = event_handle(end);
    const py::gil_scoped_release released;
    return events::elapsed_ms(first, last);
  });
  module.def("_modelled_elapsed_ms", [](const py::object& start, const py::object& end) {
    return events::modelled_elapsed_ms(event_handle(start), event_handle(end));
  });
}

}  // namespace
}  // namespace spyre

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  spyre::register_hooks();
  spyre::bind_formats(module);
  spyre::bind_layouts(module);
  spyre::bind_copies(module);
  spyre::bind_devices(module);
  spyre::bind_memory(module);
  spyre::bind_random(module);
  spyre::bind_streams(module);
  spyre::bind_fallbacks(module);
  spyre::bind_programs(module);
  spyre::bind_cost(module);
  spyre::bind_doors(module);
}
