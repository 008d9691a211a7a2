#include "ops/memory/spyre_copy.h"

#include <cmath>
#include <limits>

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/strides.h>

#include "ops/memory/spyre_storage.h"
#include "program/program_launch.h"
#include "runtime/logging.h"
#include "runtime/spyre_pinned.h"
#include "runtime/spyre_runtime.h"
#include "runtime/spyre_stream.h"
#include "spyre/card.h"
#include "spyre/program.h"
#include "tensor/spyre_dtypes.h"
#include "tensor/spyre_int64.h"
#include "tensor/spyre_tensor_impl.h"
#include "tensor/spyre_tiling.h"

namespace spyre {
namespace {

/// Loops of `tensor`'s elements over its device memory, beside strides of another tensor.
std::vector<Nest> device_loops(const at::Tensor& tensor, const Nest& nest, bool writing) {
  const StorageContext& context = storage_context(tensor);
  const std::int64_t reach =
      storage_span(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  TORCH_CHECK(context.allocation && (reach <= context.numel || has_own_layout(tensor)),
              "the tensor reaches element ", reach - 1, " of its storage, which holds ",
              context.numel, ": the storage was resized under it.");
  const Tiling tiling(layout_of(tensor));
  std::vector<Nest> nests;
  TORCH_CHECK_VALUE(
      tiling.place(nest, nests),
      "Invalid device sizes and stride map for host sizes and strides: ", layout_of(tensor).str(),
      " has no place for some elements of a tensor of size ", tensor.sizes(), ", strides ",
      tensor.strides(), " and offset ", tensor.storage_offset(), ".");
  if (writing)
    for (const LoopDim& replica : tiling.replicas())
      for (Nest& placed : nests) placed.dims.insert(placed.dims.begin(), replica);
  return nests;
}

std::vector<std::int64_t> innermost_first(c10::IntArrayRef values) {
  return {values.rbegin(), values.rend()};
}

/// Number of bytes from a CPU tensor's first element to the end of its last.
std::size_t host_bytes(const at::Tensor& tensor) {
  return static_cast<std::size_t>(storage_span(tensor.sizes(), tensor.strides())) *
         tensor.element_size();
}

card::Handle handle_of(const at::Tensor& tensor) {
  return storage_context(tensor).allocation->handle;
}

/// Keeps tensors' memory (never Python objects) alive until queued work is done.
card::Retained retained(const at::Tensor& tensor) { return storage_context(tensor).allocation; }

card::Retained retained(const at::Tensor& device, const at::Tensor& host) {
  // The host tensor may be the last owner of its storage; an alias holds on to the storage alone.
  struct Both {
    std::shared_ptr<const Allocation> device;
    c10::Storage host;
  };
  return std::make_shared<const Both>(Both{storage_context(device).allocation, host.storage()});
}

std::string dtype_and_layout(const at::Tensor& tensor) {
  const std::string dtype = dtype_name(tensor.scalar_type());
  return is_spyre(tensor) ? dtype + " in " + layout_of(tensor).str() : dtype;
}

void log_copy(const char* way, const at::Tensor& source, const at::Tensor& target,
              const card::DataConversion& conversion) {
  if (!debug_enabled()) return;  // the text of a layout takes longer than all else here
  debug(way, ": ", source.sizes(), ' ', dtype_and_layout(source), " -> ", dtype_and_layout(target),
        ", ", conversion.loops.size(), " loop nests");
}

/// Of a tensor on the card, to or from host memory where elements of a format lie so.
card::DataConversion transfer(const at::Tensor& tensor, c10::IntArrayRef host_stride,
                              DataFormat host, bool to_card) {
  const DataFormat device = layout_of(tensor).device_dtype;
  const Nest nest =
      Nest::over(tensor.sizes(), tensor.strides(), tensor.storage_offset(), host_stride);
  card::DataConversion conversion;
  conversion.host_to_device = to_card;
  conversion.src = to_card ? host : device;
  conversion.dst = to_card ? device : host;
  conversion.loops = descriptor_loops(device_loops(tensor, nest, /*writing=*/to_card), to_card);
  return conversion;
}

/// What a value must be brought to when it becomes an element of `target`.
card::Narrow narrowing(c10::ScalarType source, c10::ScalarType target) {
  return source == target ? card::Narrow::none : dtype_info(target).narrow;
}

at::Tensor without_negation(const at::Tensor& tensor) {
  at::Tensor plain = tensor.alias();
  plain.unsafeGetTensorImpl()->_set_neg(false);
  return plain;
}

card::Submit submission(const at::Tensor& host, bool non_blocking) {
  // Only pinned memory may still be read or written after the call has returned.
  return non_blocking && is_pinned(host.const_data_ptr()) ? card::Submit::queue
                                                          : card::Submit::wait;
}

/// Runs a program once; all operands are on one card.
void run_once(card::ProgramBuilder& program, c10::ArrayRef<at::Tensor> operands) {
  card::Card& card = runtime::card(operands[0].device().index());
  launch_program(card.load_program(program.finish()), operands);
}

std::uint64_t encode(double value, DataFormat format) {
  std::uint64_t bits = 0;
  runtime::platform().convert(DataFormat::IEEE_FP64, &value, format, &bits, 1, card::Narrow::none);
  return bits;
}

/// A number as a CPU tensor of the dtype has it, from where it would come to the card.
double rounded_on_host(c10::ScalarType dtype, double number) {
  double host = number;
  if (dtype == c10::ScalarType::Half) host = c10::Half(static_cast<float>(number));
  if (dtype == c10::ScalarType::BFloat16) host = c10::BFloat16(static_cast<float>(number));
  // The card's format has more range than float16.
  return number_for(dtype, std::isfinite(host) ? host : number);
}

/// Checked like torch.full: a value that the dtype cannot hold is refused.
std::uint64_t encode(const c10::Scalar& value, const at::Tensor& target) {
  const DataFormat format = layout_of(target).device_dtype;
  switch (target.scalar_type()) {
    case c10::ScalarType::Bool:
      return encode(value.to<bool>() ? 1.0 : 0.0, format);
    case c10::ScalarType::Byte:
      return value.to<std::uint8_t>();
    case c10::ScalarType::Char:
      return static_cast<std::uint8_t>(value.to<std::int8_t>());
    case c10::ScalarType::Short:
      return static_cast<std::uint16_t>(value.to<std::int16_t>());
    case c10::ScalarType::Int:
      return static_cast<std::uint32_t>(value.to<std::int32_t>());
    case c10::ScalarType::Long:
      check_int64(value.to<std::int64_t>());
      return static_cast<std::uint32_t>(value.to<std::int64_t>());  // wraps, like every int64
    case c10::ScalarType::Half:
      value.to<c10::Half>();
      break;
    case c10::ScalarType::BFloat16:
      value.to<c10::BFloat16>();
      break;
    case c10::ScalarType::Float:
      value.to<float>();
      break;
    default:
      break;
  }
  return encode(rounded_on_host(target.scalar_type(), value.to<double>()), format);
}

}  // namespace

double number_in(c10::ScalarType dtype, double number) {
  const DataFormat format = device_format(dtype);
  const std::uint64_t bits = encode(rounded_on_host(dtype, number), format);
  double held = 0;
  runtime::platform().convert(format, &bits, DataFormat::IEEE_FP64, &held, 1, card::Narrow::none);
  return held;
}

std::uint32_t encode_constant(double value, DataFormat format) {
  const DataFormat encoding =
      format == DataFormat::IEEE_FP32 ? DataFormat::IEEE_FP32 : DataFormat::SEN169_FP16;
  return static_cast<std::uint32_t>(encode(value, encoding));
}

card::DataConversion conversion_to_card(const at::Tensor& source, const at::Tensor& target) {
  card::DataConversion conversion =
      transfer(target, source.strides(), host_format(source.scalar_type()), /*to_card=*/true);
  conversion.narrow = narrowing(source.scalar_type(), target.scalar_type());
  conversion.input_shape = innermost_first(source.sizes());
  conversion.output_shape = innermost_first(layout_of(target).device_size);
  return conversion;
}

card::DataConversion conversion_to_host(const at::Tensor& source, const at::Tensor& target) {
  card::DataConversion conversion =
      transfer(source, target.strides(), host_format(target.scalar_type()), /*to_card=*/false);
  conversion.input_shape = innermost_first(layout_of(source).device_size);
  conversion.output_shape = innermost_first(target.sizes());
  return conversion;
}

void copy_to_card(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (is_byte_view(target)) return copy_bytes_to_card(source, target);
  if (target.scalar_type() == c10::ScalarType::Long) check_int64(source);
  card::DataConversion conversion = conversion_to_card(source, target);
  log_copy("to card", source, target, conversion);
  streams::current_card_stream(target.device().index())
      .to_card(source.const_data_ptr(), host_bytes(source), handle_of(target),
               std::move(conversion), submission(source, non_blocking), retained(target, source));
}

void copy_to_host(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  if (is_byte_view(source)) return copy_bytes_to_host(source, target);
  card::DataConversion conversion = conversion_to_host(source, target);
  log_copy("to host", source, target, conversion);
  streams::current_card_stream(source.device().index())
      .to_host(handle_of(source), target.mutable_data_ptr(), host_bytes(target),
               std::move(conversion), submission(target, non_blocking), retained(source, target));
}

void copy_on_card(const at::Tensor& source, const at::Tensor& target) {
  if (is_byte_view(source) || is_byte_view(target)) return copy_bytes_on_card(source, target);
  const Nest nest = Nest::over(source.sizes(), target.strides(), target.storage_offset(),
                               source.strides(), source.storage_offset());
  // First the target's places beside storage offsets of the source, then the source's places.
  std::vector<Nest> nests;
  for (const Nest& placed : device_loops(target, nest, /*writing=*/true))
    for (Nest& both : device_loops(source, placed.swapped(), /*writing=*/false))
      nests.push_back(std::move(both));

  card::DataConversion conversion;
  conversion.src = layout_of(source).device_dtype;
  conversion.dst = layout_of(target).device_dtype;
  conversion.narrow = narrowing(source.scalar_type(), target.scalar_type());
  conversion.loops = descriptor_loops(nests, /*tiled_is_destination=*/false);
  log_copy("on card", source, target, conversion);

  card::ProgramBuilder program;
  program.move(/*src_operand=*/0, /*dst_operand=*/1, conversion);
  run_once(program, {source, target});
}

void copy_between_cards(const at::Tensor& source, const at::Tensor& target) {
  if (is_byte_view(source) || is_byte_view(target)) {
    const at::Tensor bytes = at::empty(source.sizes(), source.options().device(c10::kCPU));
    copy_to_host(source, bytes, false);
    return copy_to_card(bytes, target, false);
  }
  // Through the host in the source's own device format, so that nothing is rounded on the way.
  const DataFormat format = layout_of(source).device_dtype;
  const c10::DimVector packed = c10::contiguous_strides(source.sizes());
  const std::size_t bytes = source.numel() * layout_of(source).element_bytes();
  const auto buffer = std::make_shared<std::vector<std::byte>>(bytes);

  streams::current_card_stream(source.device().index())
      .to_host(handle_of(source), buffer->data(), bytes,
               transfer(source, packed, format, /*to_card=*/false), card::Submit::wait,
               retained(source));

  card::DataConversion in = transfer(target, packed, format, /*to_card=*/true);
  in.narrow = narrowing(source.scalar_type(), target.scalar_type());
  streams::current_card_stream(target.device().index())
      .to_card(buffer->data(), bytes, handle_of(target), std::move(in), card::Submit::wait,
               retained(target));
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  TORCH_CHECK(source.defined() && target.defined(), "copy_: tensors must be defined.");
  TORCH_CHECK(at::is_expandable_to(source.sizes(), target.sizes()), "copy_: a tensor of size ",
              source.sizes(), " cannot be copied into (broadcast to) one of size ", target.sizes(),
              ".");
  if (target.numel() == 0) {
    // Nothing moves, but a raw storage still learns from the other what it holds.
    if (is_spyre(source) && is_spyre(target) && storage_context(target).raw)
      copy_bytes_on_card(source, target);
    return target;
  }
  at::assert_no_internal_overlap(target);
  const at::Tensor expanded =
      source.sizes() == target.sizes() ? source : source.expand(target.sizes());
  if (source.is_neg() != target.is_neg()) {
    // Lazy negation (a view of an imaginary part has it): rare enough to go through the host.
    at::Tensor host = at::empty(expanded.sizes(), expanded.options().device(c10::kCPU));
    copy_from(without_negation(expanded), host, false);
    return copy_from(host.neg_(), without_negation(target), non_blocking);
  }

  if (!is_spyre(target)) {
    TORCH_CHECK(target.is_cpu(), "copy_: cannot copy from ", source.device(), " to ",
                target.device(), "; go through the CPU with .cpu().");
    copy_to_host(expanded, target, non_blocking);
  } else if (!is_spyre(source)) {
    TORCH_CHECK(source.is_cpu(), "copy_: cannot copy from ", source.device(), " to ",
                target.device(), "; go through the CPU with .cpu().");
    copy_to_card(expanded, target, non_blocking);
  } else if (source.device() != target.device()) {
    copy_between_cards(expanded, target);
  } else {
    if (source.storage().is_alias_of(target.storage()) && source.dtype() == target.dtype()) {
      if (target.is_set_to(expanded)) return target;
      at::assert_no_partial_overlap(target, expanded);
    }
    if (target.scalar_type() == c10::ScalarType::Long && source.is_floating_point() &&
        int64_must_fit())
      check_int64(expanded.cpu());
    copy_on_card(expanded, target);
  }
  return target;
}

at::Tensor unexpanded(const at::Tensor& tensor, std::int64_t dims) {
  at::Tensor once = tensor;
  for (std::int64_t d = 0; d < dims; ++d)
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) once = once.narrow(d, 0, 1);
  return once;
}

void fill(const at::Tensor& expanded, const c10::Scalar& value) {
  if (expanded.numel() == 0) return;
  const at::Tensor target = unexpanded(expanded);
  if (is_byte_view(target)) return fill_bytes(target, value.to<std::uint8_t>());
  const Nest nest =
      Nest::over(target.sizes(), target.strides(), target.storage_offset(), target.strides());
  const auto loops =
      descriptor_loops(device_loops(target, nest, /*writing=*/true), /*tiled_is_destination=*/true);
  card::ProgramBuilder program;
  program.fill(/*dst_operand=*/0, layout_of(target).device_dtype, encode(value, target), loops);
  run_once(program, {target});
}

bool fills_uninitialised() {
  const at::Context& context = at::globalContext();
  return context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory();
}

void fill_uninitialised(const at::Tensor& target) {
  if (!fills_uninitialised()) return;
  const c10::ScalarType dtype = target.scalar_type();
  const bool whole = c10::isIntegralType(dtype, /*includeBool=*/true);
  spyre::fill(target, whole ? range_of(dtype).most : std::numeric_limits<double>::quiet_NaN());
}

at::Tensor element_to_host(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.numel() == 1, "a Tensor with ", tensor.numel(),
              " elements cannot be converted to Scalar");
  at::Tensor value = at::empty(tensor.sizes(), tensor.options().device(c10::kCPU));
  copy_to_host(tensor, value, false);
  return value;
}

}  // namespace spyre
