// Pointwise ops on packed values in the card's registers, so to speak: buffers of fp32 or int64.
//
// What an op means is in torch_spyre/ops/table.toml; step_pointwise.cpp brings elements of operands
// into such buffers and results back.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "spyre/machine.h"
#include "spyre/ops.h"

namespace spyre::card {

/// No op has more of either.
inline constexpr int kMaxInputs = 5, kMaxConstants = 3;

/// out[i] = op(in[0][i], in[1][i], ...) for n values of the compute type. `out` overlaps no input.
/// There are as many inputs as the op table says, and always kMaxConstants constants.
using PointwiseRun = void (*)(const void* const* in, void* out, const double* constants, size_t n);

/// The constants of an op, in the type it computes in.
template <typename Value>
struct Constants {
  Value k[kMaxConstants];
};

/// An op on fp32 of which one input is a number: out[i] = op(in[i], number), or op(number, in[i]).
/// `out` does not overlap `in`.
using NumberRun = void (*)(const float* in, float number, float* out, size_t n);

/// Like ConvertRun of convert.h.
using PackedRun = void (*)(const void* src, void* dst, size_t n);

/// Changes n values of the compute type.
using InPlace = void (*)(void* values, size_t n);

/// What one vector width has. Lists end with an entry of null pointers.
struct PointwiseKernels {
  struct Op {
    OpFunc op;
    PointwiseRun fp32, int64;  ///< null where the op does not compute in that type
  };
  /// The ops for which a number is worth a function of its own.
  struct NumberOp {
    OpFunc op;
    NumberRun second, first;  ///< by which input is the number
  };
  /// Conversions that convert.h has only in a slow version.
  struct Conversion {
    DataFormat format;
    PackedRun to_fp32, to_int64, from_int64;  ///< null: take that of convert.h
  };
  const Op* ops;
  const NumberOp* number_ops;
  const Conversion* conversions;
  /// Copies fp32 values; every NaN becomes the positive quiet one, whatever made it.
  PackedRun clean_fp32;
  /// The same in place.
  InPlace quiet_fp32;
  /// In place: 1 for what is not zero, NaN included, else 0.
  InPlace boolean_fp32;
  InPlace boolean_int64;
  /// In place: what is left of fp32 values that were stored as DLFloat16, by its special values.
  InPlace dl16_ieee, dl16_merged;
};

namespace baseline {
extern const PointwiseKernels pointwise_kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const PointwiseKernels pointwise_kernels;
}
namespace avx512 {
extern const PointwiseKernels pointwise_kernels;
}
#endif

/// Elements of a cheap op that one of this op takes the time of.
int64_t work_of(const OpInfo& op);

/// The arithmetic for this machine.
const PointwiseKernels& pointwise_kernels_here();
/// Null if the op does not compute in fp32 or, if `integer`, in int64.
PointwiseRun pointwise_kernel(OpFunc op, bool integer);
/// The op in fp32 with a number as input `which`; null if there is no such function.
NumberRun number_kernel(OpFunc op, int which);

}  // namespace spyre::card
