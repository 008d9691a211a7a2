// The variants of an op, made of the one kernel that is written for it.
//
//   Tensor& take(const Tensor& self, const Tensor& index, Tensor& out);  // makes `out` if
//   undefined
//
//   implement<take>(m, "take", "take.out");
//
// A kernel of two outputs returns them as a tuple of references.
#pragma once

#include <array>
#include <tuple>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace spyre::eager {

/// How many outputs a kernel has that returns this, and what its functional variant returns.
template <class Result>
struct Returned;
template <>
struct Returned<at::Tensor&> {
  static constexpr std::size_t kOutputs = 1;
  using Made = at::Tensor;
};
template <class... Each>
struct Returned<std::tuple<Each...>> {
  static constexpr std::size_t kOutputs = sizeof...(Each);
  using Made = std::tuple<std::remove_reference_t<Each>...>;
};

/// Kernels as types, since argument lists can only be taken apart as lists of types.
template <auto kernel, class Signature = decltype(kernel)>
struct Variants;
template <auto kernel, class Result, class... Arguments>
struct Variants<kernel, Result (*)(Arguments...)> {
  using Made = typename Returned<Result>::Made;
  static constexpr std::size_t kOutputs = Returned<Result>::kOutputs;
  using Inputs = std::make_index_sequence<sizeof...(Arguments) - kOutputs>;
  template <std::size_t i>
  using Argument = std::tuple_element_t<i, std::tuple<Arguments...>>;

  template <std::size_t... input, std::size_t... output>
  static constexpr auto functional(std::index_sequence<input...>, std::index_sequence<output...>) {
    return +[](Argument<input>... inputs) -> Made {
      std::array<at::Tensor, kOutputs> made;
      kernel(std::forward<Argument<input>>(inputs)..., made[output]...);
      return Made{std::move(made[output])...};
    };
  }

  template <std::size_t first, std::size_t... input>
  static constexpr auto in_place(std::index_sequence<first, input...>) {
    return +[](at::Tensor& self, Argument<input>... inputs) -> at::Tensor& {
      return kernel(self, std::forward<Argument<input>>(inputs)..., self);
    };
  }
};

/// op(inputs...) of a kernel for op.out(inputs..., outputs...).
template <auto kernel>
inline constexpr auto functional = Variants<kernel>::functional(
    typename Variants<kernel>::Inputs(), std::make_index_sequence<Variants<kernel>::kOutputs>());

/// op_(self, inputs...): the output is the first input.
template <auto kernel>
inline constexpr auto in_place = Variants<kernel>::in_place(typename Variants<kernel>::Inputs());

/// Registers a kernel under its name, and its functional variant under that one's.
template <auto kernel>
void implement(torch::Library& library, const char* made, const char* out) {
  library.impl(made, functional<kernel>);
  library.impl(out, kernel);
}

}  // namespace spyre::eager
