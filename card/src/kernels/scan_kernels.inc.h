// Scans on blocks arranged across: position after position, all lines at once. A part of
// reduce_<level>.cpp, under its rules.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

/// Floats are carried in double: the error of a running sum would else grow with its length.
template <bool product>
void scan_floats(float* x, int64_t*, LineBlock block, int64_t, ScanState state) {
  double* const carried = state.sums;
  for (int64_t p = 0; p < block.length; ++p) {
    float* const row = x + p * block.pitch;
#pragma GCC ivdep
    for (int64_t i = 0; i < block.lines; ++i) {
      const double next = product ? carried[i] * row[i] : carried[i] + row[i];
      carried[i] = next;
      row[i] = static_cast<float>(next);
    }
  }
}

template <bool product>
void scan_integers(int64_t* x, int64_t*, LineBlock block, int64_t, ScanState state) {
  int64_t* const carried = static_cast<int64_t*>(state.values);
  for (int64_t p = 0; p < block.length; ++p) {
    int64_t* const row = x + p * block.pitch;
#pragma GCC ivdep
    for (int64_t i = 0; i < block.lines; ++i)
      row[i] = carried[i] = product ? times(carried[i], row[i]) : plus(carried[i], row[i]);
  }
}

/// The last of equal values wins, and the last NaN, as in torch.
template <typename T, bool largest>
void scan_extremes(T* x, int64_t* indices, LineBlock block, int64_t position, ScanState state) {
  T* const carried = static_cast<T*>(state.values);
  for (int64_t p = 0; p < block.length; ++p) {
    T* const row = x + p * block.pitch;
    int64_t* const index = state.indices;
    const int64_t here = position + p;
#pragma GCC ivdep
    for (int64_t i = 0; i < block.lines; ++i) {
      const T value = row[i], before = carried[i];
      const bool takes =
          (value != value) | (largest ? value >= before : value <= before) | (here == 0);
      carried[i] = takes ? value : before;
      index[i] = takes ? here : index[i];
      row[i] = carried[i];
    }
    if (indices) {
      int64_t* const out = indices + p * block.pitch;
#pragma GCC ivdep
      for (int64_t i = 0; i < block.lines; ++i) out[i] = index[i];
    }
  }
}

/// A running maximum, and the sum of exponentials relative to it.
void scan_exponentials(float* x, int64_t*, LineBlock block, int64_t position, ScanState state) {
  double* const sums = state.sums;
  float* const maxima = static_cast<float*>(state.values);
  for (int64_t p = 0; p < block.length; ++p) {
    float* const row = x + p * block.pitch;
    const bool first = position + p == 0;
#pragma GCC ivdep
    for (int64_t i = 0; i < block.lines; ++i) {
      const float value = row[i], before = first ? -__builtin_inff() : maxima[i];
      const float now = ((value > before) | (value != value)) ? value : before;
      // Infinity minus itself is not a number; nothing of it is wanted here.
      const float shift = ((now == Limits<float>::high) | (now == Limits<float>::low)) ? 0.0f : now;
      const float kept = before == Limits<float>::low ? 0.0f : exp32_of(before - shift);
      const double sum =
          (first ? 0.0 : sums[i] * static_cast<double>(kept)) + exp32_of(value - shift);
      maxima[i] = now;
      sums[i] = sum;
      row[i] = shift + log32_of(static_cast<float>(sum));
    }
  }
}

constexpr ScanKernels<float> float_scan_kernels() {
  return {scan_floats<false>, scan_floats<true>, scan_extremes<float, true>,
          scan_extremes<float, false>, scan_exponentials};
}

constexpr ScanKernels<int64_t> integer_scan_kernels() {
  return {scan_integers<false>, scan_integers<true>, scan_extremes<int64_t, true>,
          scan_extremes<int64_t, false>, nullptr};
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
