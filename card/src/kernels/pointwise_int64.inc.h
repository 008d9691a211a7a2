// The pointwise ops on integers. Everything wraps around; dividing by zero gives zero.
// See pointwise_kernels.inc.h.

#include "kernels/pointwise.h"

namespace spyre::card::SPYRE_SIMD_NAMESPACE {
namespace {
namespace int64 {

using I = int64_t;
using K = Constants<int64_t>;

inline uint64_t wrapping(I a) { return static_cast<uint64_t>(a); }

inline I identity(I a) { return a; }
inline I zero(I) { return 0; }
inline I one(I) { return 1; }
inline I add(I a, I b) { return static_cast<I>(wrapping(a) + wrapping(b)); }
inline I sub(I a, I b) { return static_cast<I>(wrapping(a) - wrapping(b)); }
inline I rsub(I a, I b) { return sub(b, a); }
inline I mul(I a, I b) { return static_cast<I>(wrapping(a) * wrapping(b)); }
inline I square(I a) { return mul(a, a); }
inline I neg(I a) { return sub(0, a); }
inline I abs(I a) { return a < 0 ? neg(a) : a; }
inline I maximum(I a, I b) { return a > b ? a : b; }
inline I minimum(I a, I b) { return a < b ? a : b; }
inline I clip(I a, const K& k) { return minimum(maximum(a, k.k[0]), k.k[1]); }
inline I equal(I a, I b) { return a == b; }
inline I notequal(I a, I b) { return a != b; }
inline I greaterthan(I a, I b) { return a > b; }
inline I greaterequal(I a, I b) { return a >= b; }
inline I lesserthan(I a, I b) { return a < b; }
inline I lesserequal(I a, I b) { return a <= b; }
inline I where(I condition, I a, I b) { return condition != 0 ? a : b; }
inline I relu(I a) { return a < 0 ? 0 : a; }
inline I sign(I a) { return (a > 0) - (a < 0); }
inline I signbit(I a) { return a < 0; }
inline I axpy(I a, I b, const K& k) { return add(a, mul(k.k[0], b)); }
inline I addcmul(I a, I b, I c, const K& k) { return add(a, mul(mul(k.k[0], b), c)); }
inline I nan_to_num(I a, const K&) { return a; }
inline I threshold(I a, const K& k) { return a <= k.k[0] ? k.k[1] : a; }
inline I relubwd(I gradient, I y) { return y <= 0 ? 0 : gradient; }
inline I thresholdbwd(I gradient, I x, const K& k) { return x <= k.k[0] ? 0 : gradient; }

inline I logicaland(I a, I b) { return (a != 0) & (b != 0); }
inline I logicalor(I a, I b) { return (a != 0) | (b != 0); }
inline I logicalxor(I a, I b) { return (a != 0) != (b != 0); }
inline I logicalnot(I a) { return a == 0; }
inline I heaviside(I a, I at_zero) { return a == 0 ? at_zero : a > 0; }
inline I bitwiseand(I a, I b) { return a & b; }
inline I bitwiseor(I a, I b) { return a | b; }
inline I bitwisexor(I a, I b) { return a ^ b; }
inline I bitwisenot(I a) { return ~a; }

inline I shiftleft(I a, I count) {
  const uint64_t result = wrapping(a) << (count & 63);
  return wrapping(count) < 64 ? static_cast<I>(result) : 0;
}
inline I shiftright(I a, I count) { return a >> (wrapping(count) < 64 ? count : 63); }

/// Toward zero. Minus one is apart because the smallest integer has no negative; zero would trap.
inline I truncdivide(I a, I b) {
  if (b == 0) return 0;
  return b == -1 ? neg(a) : a / b;
}
inline I fmod(I a, I b) { return b == 0 || b == -1 ? 0 : a % b; }
inline I remainder(I a, I b) {
  const I rest = fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline I floordivide(I a, I b) {
  const I rest = fmod(a, b);
  return truncdivide(a, b) - (rest != 0 && (rest < 0) != (b < 0));
}

inline I gcd(I a, I b) {
  uint64_t larger = wrapping(abs(a)), smaller = wrapping(abs(b));
  while (smaller != 0) {
    const uint64_t rest = larger % smaller;
    larger = smaller, smaller = rest;
  }
  return static_cast<I>(larger);
}
inline I lcm(I a, I b) {
  const I common = gcd(a, b);
  return common == 0 ? 0 : abs(mul(truncdivide(a, common), b));
}

inline I pow(I base, I exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
  uint64_t result = 1, factor = wrapping(base);
  for (; exponent > 0; exponent >>= 1, factor *= factor)
    if (exponent & 1) result *= factor;
  return static_cast<I>(result);
}

}  // namespace int64
}  // namespace
}  // namespace spyre::card::SPYRE_SIMD_NAMESPACE
