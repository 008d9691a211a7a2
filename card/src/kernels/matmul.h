// Matrix products on operands that lie in sticks.
//
// Left operands are unpacked to 32-bit numbers a block at a time; right operands too, except with
// few rows, where they are streamed from memory once and unpacked in registers.
//
// Which numbers: if all operands hold integers, integers that wrap at 32 bits (so that whatever is
// encoded in a format of 32 bits or less is exact modulo its range). Otherwise float: integers are
// converted first, products are summed in float, and the result is rounded once to the format of C.
// Every sum is one chain of fused multiply-adds in the order of k, so results depend neither on the
// number of threads, nor on which rows and columns are computed together, nor on vector widths.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "formats/accumulation.h"
#include "formats/convert.h"
#include "host/thread_pool.h"
#include "kernels/matmul_kernels.h"
#include "spyre/card.h"
#include "spyre/matmul.h"

namespace spyre::card {

/// How this process computes; tests choose for themselves.
struct MatmulMode {
  SimdLevel simd = card::simd();
  Dl16Specials specials = dl16_specials();
  /// Chunked only where A and B hold DLFloat16 or smaller floats.
  Accumulation accumulation = card::accumulation();
};

/// Whether products can be computed on elements of the format.
bool multiplies(DataFormat format);
/// Whether the product is one of integers.
bool integer_product(const Matmul& matmul);

/// A matrix product, prepared to be run many times. The description has been checked.
class MatmulPlan {
 public:
  explicit MatmulPlan(const Matmul& given, const MatmulMode& mode = {});
  MatmulPlan(const MatmulPlan&) = delete;
  MatmulPlan& operator=(const MatmulPlan&) = delete;

  /// The start of each operand. C shares no memory with A and B, and with the bias only if both
  /// have each element in the same place. `bias` may be null if there is none.
  struct Operands {
    const std::byte *a, *b;
    std::byte* c;
    const std::byte* bias;
  };
  void run(const Operands& operands, ThreadPool& pool = ThreadPool::shared()) const;
  double work() const { return work_; }  ///< multiply-adds

 private:
  /// Elements of one operand along the dimension it has its sticks on.
  struct Line {
    Unpacking unpacking;
    std::unique_ptr<std::array<std::uint32_t, 256>> table;  // what unpacking.table points to
    std::int64_t lanes = 1, stick_stride = 0, lane_stride = 1;
  };
  /// Offsets, in elements, of a batch or a row.
  struct Place {
    std::int64_t a = 0, b = 0, c = 0, bias = 0;
  };
  /// What one thread computes in one go.
  struct Block {
    Place batch;
    std::int64_t row, rows, column, columns;
  };
  struct Split {
    std::int64_t rows, columns;  // of a block
    std::int64_t row_blocks, column_blocks;
  };
  /// Where a thread keeps what it works on.
  struct Workspace {
    float* sums;  // [rows][stride], in C if they are formed in place
    std::int64_t stride;
    std::int64_t panel_stride;  // from the sums of a panel of B to those of the next
    float* chunk;               // as sums: the sums of one chunk
    float* a;                   // unpacked rows of A
    float* panel;               // a packed panel of B
    float* column;              // columns of B before they are transposed; a row of the bias
  };

  static Place place(const std::vector<Matmul::Batch>& dims, std::int64_t index);
  Split split(int threads) const;
  void run(const Operands& operands, const Block& block) const;
  Workspace workspace(const Operands& operands, const Block& block) const;
  void unpack_line(const Line& line, const std::byte* from, std::int64_t first, std::int64_t count,
                   float* numbers) const;
  void unpack_rows(const Operands& operands, const Block& block, std::int64_t k, std::int64_t depth,
                   std::int64_t row_stride, float* a) const;
  bool pack_panel(const std::byte* b, std::int64_t column, std::int64_t columns, std::int64_t k,
                  std::int64_t depth, const Workspace& space) const;
  void multiply(const Operands& operands, const Block& block, const Workspace& space) const;
  bool keeps_rows(const Block& block) const;
  void add_chunk(const Block& block, const Workspace& space, bool first) const;
  void stream(const Operands& operands, const Block& block, const Workspace& space) const;
  void dot(const Operands& operands, const Block& block, const Workspace& space) const;
  void unscale(const Block& block, const Workspace& space) const;
  void quiet_in_place(const Block& block, const Workspace& space) const;
  void finish(const Operands& operands, const Block& block, const Workspace& space) const;
  /// The one format whose encoding would let the bits of a NaN through.
  bool float_c() const { return !integers_ && matmul_.c.format == DataFormat::IEEE_FP32; }

  const Matmul matmul_;
  const bool integers_, chunked_, merged_;
  bool streamed_;
  bool in_place_;  // sums of products are elements of C
  const MatmulKernels& kernels_;
  Line a_, b_, bias_;
  std::int64_t c_lanes_;
  ConvertRun encode_;
  ConvertRun to_dl16_, from_dl16_;      // what a chunked sum goes through
  std::vector<Matmul::Batch> rows_;     // m, and the batches that share B: innermost first
  std::vector<Matmul::Batch> batches_;  // the others
  std::int64_t row_count_ = 1, batch_count_ = 1;
  double work_;         // none only if there is no C
  Split few_blocks_{};  // of one thread
};

}  // namespace spyre::card
