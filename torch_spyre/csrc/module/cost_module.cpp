#include <string_view>
#include <vector>

#include <pybind11/stl.h>

#include "module/bindings.h"
#include "spyre/cost.h"

namespace py = pybind11;

namespace spyre {
namespace {

using card::OpCost;
using card::Price;
using card::RingLoad;

constexpr const char* kUnits[] = {"sfp", "pt"};
constexpr const char* kBounds[] = {"memory", "compute", "lx", "ring", "overhead"};

Unit unit_of(std::string_view name) {
  if (name == "sfp") return Unit::sfp;
  TORCH_CHECK_VALUE(name == "pt", "a unit is \"sfp\" or \"pt\", not \"", name, "\".");
  return Unit::pt;
}

struct Field {
  const char* name;
  std::int64_t OpCost::* member;
};
constexpr Field kFields[] = {
    {"element_bytes", &OpCost::element_bytes},
    {"cores", &OpCost::cores},
    {"points", &OpCost::points},
    {"all_points", &OpCost::all_points},
    {"rows", &OpCost::rows},
    {"read_bytes", &OpCost::read_bytes},
    {"written_bytes", &OpCost::written_bytes},
    {"lx_bytes", &OpCost::lx_bytes},
    {"all_lx_bytes", &OpCost::all_lx_bytes},
    {"partial_sums", &OpCost::partial_sums},
    {"ring_bytes", &OpCost::ring_bytes},
    {"ring_link_bytes", &OpCost::ring_link_bytes},
    {"ring_hops", &OpCost::ring_hops},
};

OpCost make_cost(const py::kwargs& arguments) {
  OpCost cost;
  for (const auto& [key, value] : arguments) {
    const auto name = key.cast<std::string_view>();
    const auto field = std::find_if(std::begin(kFields), std::end(kFields),
                                    [&](const Field& each) { return name == each.name; });
    if (field != std::end(kFields)) {
      cost.*field->member = value.cast<std::int64_t>();
      TORCH_CHECK_VALUE(cost.*field->member >= 0, name, " is not negative.");
    } else if (name == "unit") {
      cost.unit = unit_of(value.cast<std::string_view>());
    } else {
      TORCH_CHECK_TYPE(name == "passes", "OpCost has no field ", name, ".");
      cost.passes = value.cast<double>();
    }
  }
  return cost;
}

RingLoad load_of(const std::vector<std::tuple<int, int, std::int64_t>>& sends) {
  std::vector<card::Send> all;
  for (const auto& [from, to, bytes] : sends) {
    TORCH_CHECK_INDEX(from >= 0 && from < kCores && to >= 0 && to < kCores, "core ", from, " or ",
                      to, " is not in 0..", kCores - 1, ".");
    all.push_back({from, to, bytes});
  }
  return card::ring_load(all);
}

}  // namespace

void bind_cost(py::module& module) {
  py::class_<OpCost> cost(module, "OpCost", "What an op asks of each part of the card.");
  cost.def(py::init(&make_cost));
  for (const Field& field : kFields) cost.def_readwrite(field.name, field.member);
  cost.def_readwrite("passes", &OpCost::passes);
  cost.def_property(
      "unit", [](const OpCost& self) { return kUnits[static_cast<int>(self.unit)]; },
      [](OpCost& self, std::string_view name) { self.unit = unit_of(name); });

  py::class_<Price>(module, "Price", "How long an op takes, in nanoseconds.")
      .def_readonly("compute", &Price::compute)
      .def_readonly("read", &Price::read)
      .def_readonly("write", &Price::write)
      .def_readonly("lx", &Price::lx)
      .def_readonly("ring", &Price::ring)
      .def_readonly("overhead", &Price::overhead)
      .def_readonly("total", &Price::total)
      .def_property_readonly(
          "bound", [](const Price& self) { return kBounds[static_cast<int>(self.bound)]; })
      .def_property_readonly(
          "busiest", [](const Price& self) { return kBounds[static_cast<int>(self.busiest())]; });
  module.def("price", &card::price, py::arg("op"));
  module.def("multicast_bytes", &card::multicast_bytes, py::arg("bytes"), py::arg("sharers"));
  module.def("transfer_ns", &card::transfer_ns, py::arg("device_bytes"));

  py::class_<RingLoad>(module, "RingLoad", "What messages between cores do to the ring.")
      .def_readonly("bytes", &RingLoad::bytes)
      .def_readonly("link_bytes", &RingLoad::link_bytes)
      .def_readonly("hops", &RingLoad::hops)
      .def_property_readonly("ns", &RingLoad::ns);
  module.def("ring_load", &load_of, py::arg("sends"));
  module.def(
      "ring_all_gather",
      [](const std::vector<int>& groups, std::int64_t bytes) {
        TORCH_CHECK_VALUE(groups.size() <= kCores, groups.size(), " cores, there are ", kCores,
                          ".");
        return card::ring_all_gather(groups, bytes);
      },
      py::arg("groups"), py::arg("bytes"));
}

py::dict counters_dict(const card::Counters& counters) {
  using card::Counters;
  constexpr std::pair<const char*, std::uint64_t Counters::*> fields[] = {
      {"transfers_to_card", &Counters::transfers_to_card},
      {"bytes_to_card", &Counters::bytes_to_card},
      {"transfers_to_host", &Counters::transfers_to_host},
      {"bytes_to_host", &Counters::bytes_to_host},
      {"programs_loaded", &Counters::programs_loaded},
      {"program_bytes", &Counters::program_bytes},
      {"launches", &Counters::launches},
      {"device_bytes_read", &Counters::device_bytes_read},
      {"device_bytes_written", &Counters::device_bytes_written},
      {"lx_bytes", &Counters::lx_bytes},
      {"ring_bytes", &Counters::ring_bytes},
      {"macs", &Counters::macs},
      {"sfp_elements", &Counters::sfp_elements},
      {"memory_ns", &Counters::memory_ns},
      {"compute_ns", &Counters::compute_ns},
      {"lx_ns", &Counters::lx_ns},
      {"ring_ns", &Counters::ring_ns},
      {"overhead_ns", &Counters::overhead_ns},
      {"modelled_ns", &Counters::modelled_ns},
  };
  py::dict result;
  for (const auto& [name, member] : fields) result[name] = counters.*member;
  return result;
}

}  // namespace spyre
