// The list of a level's functions. The last part of reduce_<level>.cpp.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {

const LineKernels& line_kernels() {
  static constexpr LineKernels kernels{
      float_fold_kernels(),   fold_kernels<int64_t>(), row_kernels(), float_scan_kernels(),
      integer_scan_kernels(), sweep_kernels(),         exponential,   logarithm};
  return kernels;
}

}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
