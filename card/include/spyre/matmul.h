// A matrix product as a program says it; docs/program-format.md has the words.
#pragma once

#include <cstdint>
#include <vector>

#include "spyre/card.h"
#include "spyre/ops.h"

namespace spyre::card {

/// C[m, n] = alpha * (sum over k of A[m, k] * B[k, n]) + beta * bias[m, n], for every batch.
///
/// Offsets and strides count elements. `eps` is the number of elements in a stick of the operand's
/// own format.
struct Matmul {
  /// A[m, k] at offset + m * m_stride + (k / eps) * k_stick_stride + (k % eps) * k_lane_stride.
  struct Left {
    std::int64_t operand = 0;
    DataFormat format = DataFormat::SEN169_FP16;
    std::int64_t offset = 0, m_stride = 0, k_stick_stride = 0, k_lane_stride = 1;
  };
  enum class Sticks : std::int64_t {
    along_n = 0,  ///< B[k, n] at offset + k * stride + (n / eps) * stick_stride + n % eps
    along_k = 1,  ///< B[k, n] at offset + n * stride + (k / eps) * stick_stride + k % eps
  };
  struct Right {
    std::int64_t operand = 0;
    DataFormat format = DataFormat::SEN169_FP16;
    Sticks sticks = Sticks::along_n;
    std::int64_t offset = 0, stride = 0, stick_stride = 0;
  };
  /// C[m, n] at offset + m * m_stride + (n / eps) * n_stick_stride + n % eps.
  struct Result {
    std::int64_t operand = 0;
    DataFormat format = DataFormat::SEN169_FP16;
    Narrow narrow = Narrow::none;  ///< what a value is brought to before it is encoded
    std::int64_t offset = 0, m_stride = 0, n_stick_stride = 0;
  };
  /// As A, with n for k. A row vector has an m stride of 0, a column vector n strides of 0.
  struct Bias {
    std::int64_t operand = -1;  ///< -1: no bias
    DataFormat format = DataFormat::SEN169_FP16;
    std::int64_t offset = 0, m_stride = 0, n_stick_stride = 0, n_lane_stride = 1;
  };
  struct Batch {
    std::int64_t size = 1, a = 0, b = 0, c = 0, bias = 0;  ///< and the strides of the operands
  };

  OpFunc op = OpFunc::batchmatmul;
  Left a;
  Right b;
  Result c;
  Bias bias;
  double alpha = 1, beta = 1;
  std::int64_t m = 0, n = 0, k = 0;
  std::vector<Batch> batch;
};

}  // namespace spyre::card
