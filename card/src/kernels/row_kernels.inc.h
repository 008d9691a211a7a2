// Row operations on blocks of whole lines. A part of reduce_<level>.cpp, under its rules.

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {

typedef Sum<float> FloatSum;
typedef Largest<float> FloatLargest;

// Along: one line after the other, each while it is in the nearest cache.

/// put(p) is called for each position of a line in turn; what it returns is folded.
template <class Join, class Each>
inline float fold_line(int64_t length, const Each& put) {
  Pairing<float, Join> pairing;
  for (int64_t begin = 0; begin < length; begin += kFoldPiece) {
    const int64_t end = begin + kFoldPiece < length ? begin + kFoldPiece : length;
    float lane[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) lane[i] = Join::identity;
    int64_t p = begin;
    for (; p + kLanes <= end; p += kLanes) {
#pragma GCC ivdep
      for (int64_t i = 0; i < kLanes; ++i) lane[i] = Join::join(lane[i], put(p + i));
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < end - p; ++i) lane[i] = Join::join(lane[i], put(p + i));
    pairing.add(fold_lanes<Join>(lane));
  }
  return pairing.result();
}

template <class Each>
inline void each_of_line(int64_t length, const Each& each) {
#pragma GCC ivdep
  for (int64_t p = 0; p < length; ++p) each(p);
}

// Across: position after position, all lines at once.

/// put(i, p, at): of line i and position p, which lie at `at` in the block.
template <class Join, class Each>
inline void fold_lines(const LineBlock& block, float* results, float* work, const Each& put) {
  const int64_t lines = block.lines;
  float* const lanes = work;
  float* const partials = work + kLanes * lines;
  int64_t pieces = 0;
  for (int64_t begin = 0; begin < block.length; begin += kFoldPiece, ++pieces) {
    const int64_t end = begin + kFoldPiece < block.length ? begin + kFoldPiece : block.length;
    const int64_t rows = end - begin < kLanes ? end - begin : kLanes;
    for (int64_t i = 0; i < rows * lines; ++i) lanes[i] = Join::identity;
    for (int64_t p = begin; p < end; ++p) {
      float* const lane = lanes + (p - begin) % kLanes * lines;
      const int64_t at = p * block.pitch;
#pragma GCC ivdep
      for (int64_t i = 0; i < lines; ++i) lane[i] = Join::join(lane[i], put(i, p, at + i));
    }
    for (int64_t width = kLanes / 2; width > 0; width /= 2)
      for (int64_t r = 0; r < width && r + width < rows; ++r) {
        float* const into = lanes + r * lines;
        const float* const from = into + width * lines;
#pragma GCC ivdep
        for (int64_t i = 0; i < lines; ++i) into[i] = Join::join(into[i], from[i]);
      }
    for (int64_t i = 0; i < lines; ++i) partials[pieces * lines + i] = lanes[i];
  }
  combine<float, Join>(partials, lines, lines, pieces);
  for (int64_t i = 0; i < lines; ++i) results[i] = pieces > 0 ? partials[i] : Join::identity;
}

template <class Each>
inline void each_of_lines(const LineBlock& block, const Each& each) {
  for (int64_t p = 0; p < block.length; ++p) {
    const int64_t at = p * block.pitch;
#pragma GCC ivdep
    for (int64_t i = 0; i < block.lines; ++i) each(i, p, at + i);
  }
}

/// Room for one number a line, behind what fold_lines() uses.
inline float* line_values(const RowBlock& block, int index) {
  const int64_t pieces = (block.shape.length + kFoldPiece - 1) / kFoldPiece;
  return block.work + (kLanes + pieces + index) * block.shape.lines;
}

// -------------------------------------------------------------------------------------------
// softmax

constexpr float kSmallest = 0x1p-126f;

/// x * scale, or 0 where that is below the smallest normal number: hosts take a hundred times as
/// long to compute such numbers. NaN stays.
inline float scaled(float x, float scale, float tiny) { return (x < tiny ? 0.0f : x) * scale; }

template <bool logarithmic>
void softmax(const RowBlock& block) {
  const LineBlock& shape = block.shape;
  const int64_t length = shape.length;
  if (!shape.across) {
    for (int64_t line = 0; line < shape.lines; ++line) {
      float* const x = block.first + line * shape.pitch;
      const float largest = fold_line<FloatLargest>(length, [=](int64_t p) { return x[p]; });
      if constexpr (logarithmic) {
        const float sum =
            fold_line<FloatSum>(length, [=](int64_t p) { return exp32_of(x[p] - largest); });
        const float log_sum = log32_of(sum);
        each_of_line(length, [=](int64_t p) { x[p] = x[p] - largest - log_sum; });
      } else {
        const float sum =
            fold_line<FloatSum>(length, [=](int64_t p) { return x[p] = exp32_of(x[p] - largest); });
        const float scale = 1.0f / sum, tiny = sum * kSmallest;
        each_of_line(length, [=](int64_t p) { x[p] = scaled(x[p], scale, tiny); });
      }
    }
    return;
  }
  float* const x = block.first;
  float* const largest = line_values(block, 0);
  float* const sums = line_values(block, 1);
  fold_lines<FloatLargest>(shape, largest, block.work,
                           [=](int64_t, int64_t, int64_t at) { return x[at]; });
  if constexpr (logarithmic) {
    fold_lines<FloatSum>(shape, sums, block.work, [=](int64_t i, int64_t, int64_t at) {
      return exp32_of(x[at] - largest[i]);
    });
    for (int64_t i = 0; i < shape.lines; ++i) sums[i] = log32_of(sums[i]);
    each_of_lines(shape,
                  [=](int64_t i, int64_t, int64_t at) { x[at] = x[at] - largest[i] - sums[i]; });
  } else {
    fold_lines<FloatSum>(shape, sums, block.work, [=](int64_t i, int64_t, int64_t at) {
      return x[at] = exp32_of(x[at] - largest[i]);
    });
    float *const scales = largest, *const tiny = sums;
    for (int64_t i = 0; i < shape.lines; ++i) {
      scales[i] = 1.0f / sums[i];
      tiny[i] = sums[i] * kSmallest;
    }
    each_of_lines(
        shape, [=](int64_t i, int64_t, int64_t at) { x[at] = scaled(x[at], scales[i], tiny[i]); });
  }
}

/// Of the gradient (first) and the result of the forward operation (second).
template <bool logarithmic>
void softmaxbwd(const RowBlock& block) {
  const LineBlock& shape = block.shape;
  if (!shape.across) {
    for (int64_t line = 0; line < shape.lines; ++line) {
      float* const g = block.first + line * shape.pitch;
      const float* const y = block.second + line * shape.pitch;
      const float sum = fold_line<FloatSum>(
          shape.length, [=](int64_t p) { return logarithmic ? g[p] : g[p] * y[p]; });
      each_of_line(shape.length, [=](int64_t p) {
        g[p] = logarithmic ? g[p] - exp32_of(y[p]) * sum : y[p] * (g[p] - sum);
      });
    }
    return;
  }
  float* const g = block.first;
  const float* const y = block.second;
  float* const sums = line_values(block, 0);
  fold_lines<FloatSum>(shape, sums, block.work, [=](int64_t, int64_t, int64_t at) {
    return logarithmic ? g[at] : g[at] * y[at];
  });
  each_of_lines(shape, [=](int64_t i, int64_t, int64_t at) {
    g[at] = logarithmic ? g[at] - exp32_of(y[at]) * sums[i] : y[at] * (g[at] - sums[i]);
  });
}

// ---------------------------------------------------------------------------------------------
// norms

/// Weights of a line: one for all lines, or one block like x.
inline const float* of_line(const float* weights, bool one, int64_t line, int64_t pitch) {
  return !weights || one ? weights : weights + line * pitch;
}

/// x = (x - mean) * scale * weight + bias, for whichever of weight and bias there are.
inline void affine_along(float* x, int64_t length, float mean, float scale, const float* weight,
                         const float* bias) {
  if (weight && bias) {
    each_of_line(length, [=](int64_t p) { x[p] = (x[p] - mean) * scale * weight[p] + bias[p]; });
  } else if (weight) {
    each_of_line(length, [=](int64_t p) { x[p] = (x[p] - mean) * scale * weight[p]; });
  } else if (bias) {
    each_of_line(length, [=](int64_t p) { x[p] = (x[p] - mean) * scale + bias[p]; });
  } else {
    each_of_line(length, [=](int64_t p) { x[p] = (x[p] - mean) * scale; });
  }
}

inline void affine_across(const RowBlock& block, const float* means, const float* scales) {
  const LineBlock& shape = block.shape;
  float* const x = block.first;
  for (int64_t p = 0; p < shape.length; ++p) {
    const int64_t row = p * shape.pitch;
    const float *const weight = block.weight, *const bias = block.bias;
#pragma GCC ivdep
    for (int64_t i = 0; i < shape.lines; ++i) x[row + i] = (x[row + i] - means[i]) * scales[i];
    if (weight && block.one_weight) {
      const float w = weight[p];
#pragma GCC ivdep
      for (int64_t i = 0; i < shape.lines; ++i) x[row + i] = x[row + i] * w;
    } else if (weight) {
#pragma GCC ivdep
      for (int64_t i = 0; i < shape.lines; ++i) x[row + i] = x[row + i] * weight[row + i];
    }
    if (bias && block.one_bias) {
      const float b = bias[p];
#pragma GCC ivdep
      for (int64_t i = 0; i < shape.lines; ++i) x[row + i] = x[row + i] + b;
    } else if (bias) {
#pragma GCC ivdep
      for (int64_t i = 0; i < shape.lines; ++i) x[row + i] = x[row + i] + bias[row + i];
    }
  }
}

inline float scale_of(float mean_square, float epsilon) {
  return 1.0f / __builtin_sqrtf(mean_square + epsilon);
}

/// layernorm, or with `rms` rmsnorm: there the mean is not taken out.
template <bool rms>
void norm(const RowBlock& block) {
  const LineBlock& shape = block.shape;
  const int64_t length = shape.length;
  const float n = static_cast<float>(length);
  float *const means = block.means, *const scales = block.scales;
  if (!shape.across) {
    for (int64_t line = 0; line < shape.lines; ++line) {
      float* const x = block.first + line * shape.pitch;
      float mean = 0;
      if constexpr (!rms) mean = fold_line<FloatSum>(length, [=](int64_t p) { return x[p]; }) / n;
      const float square =
          fold_line<FloatSum>(length, [=](int64_t p) { return (x[p] - mean) * (x[p] - mean); });
      const float scale = scale_of(square / n, block.epsilon);
      means[line] = mean;
      scales[line] = scale;
      affine_along(x, length, mean, scale,
                   of_line(block.weight, block.one_weight, line, shape.pitch),
                   of_line(block.bias, block.one_bias, line, shape.pitch));
    }
    return;
  }
  const float* const x = block.first;
  if constexpr (rms) {
    for (int64_t i = 0; i < shape.lines; ++i) means[i] = 0;
  } else {
    fold_lines<FloatSum>(shape, means, block.work,
                         [=](int64_t, int64_t, int64_t at) { return x[at]; });
    for (int64_t i = 0; i < shape.lines; ++i) means[i] = means[i] / n;
  }
  fold_lines<FloatSum>(shape, scales, block.work, [=](int64_t i, int64_t, int64_t at) {
    return (x[at] - means[i]) * (x[at] - means[i]);
  });
  for (int64_t i = 0; i < shape.lines; ++i) scales[i] = scale_of(scales[i] / n, block.epsilon);
  affine_across(block, means, scales);
}

/// The gradient of x, of the gradient (first) and x (second):
/// scale * (gw - mean(gw) - xhat * mean(gw * xhat)), gw = g * weight, xhat = (x - mean) * scale.
void layernormbwd(const RowBlock& block) {
  const LineBlock& shape = block.shape;
  const int64_t length = shape.length;
  const float n = static_cast<float>(length);
  if (!shape.across) {
    for (int64_t line = 0; line < shape.lines; ++line) {
      float* const g = block.first + line * shape.pitch;
      const float* const x = block.second + line * shape.pitch;
      const float mean = block.means[line], scale = block.scales[line];
      const float* const weight = of_line(block.weight, block.one_weight, line, shape.pitch);
      if (weight) each_of_line(length, [=](int64_t p) { g[p] = g[p] * weight[p]; });
      const float sum = fold_line<FloatSum>(length, [=](int64_t p) { return g[p]; }) / n;
      const float product =
          fold_line<FloatSum>(length, [=](int64_t p) { return g[p] * ((x[p] - mean) * scale); }) /
          n;
      each_of_line(length, [=](int64_t p) {
        g[p] = scale * (g[p] - sum - (x[p] - mean) * scale * product);
      });
    }
    return;
  }
  float* const g = block.first;
  const float *const x = block.second, *const means = block.means, *const scales = block.scales;
  const float* const weight = block.weight;
  float *const sums = line_values(block, 0), *const products = line_values(block, 1);
  if (weight && block.one_weight)
    each_of_lines(shape, [=](int64_t, int64_t p, int64_t at) { g[at] = g[at] * weight[p]; });
  else if (weight)
    each_of_lines(shape, [=](int64_t, int64_t, int64_t at) { g[at] = g[at] * weight[at]; });
  fold_lines<FloatSum>(shape, sums, block.work,
                       [=](int64_t, int64_t, int64_t at) { return g[at]; });
  fold_lines<FloatSum>(shape, products, block.work, [=](int64_t i, int64_t, int64_t at) {
    return g[at] * ((x[at] - means[i]) * scales[i]);
  });
  for (int64_t i = 0; i < shape.lines; ++i) {
    sums[i] = sums[i] / n;
    products[i] = products[i] / n;
  }
  each_of_lines(shape, [=](int64_t i, int64_t, int64_t at) {
    g[at] = scales[i] * (g[at] - sums[i] - (x[at] - means[i]) * scales[i] * products[i]);
  });
}

constexpr RowKernels row_kernels() {
  return {softmax<false>, softmax<true>, softmaxbwd<false>, softmaxbwd<true>,
          norm<false>,    norm<true>,    layernormbwd};
}

}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
