// Sums and maxima over the lanes of a warp, and the names every kernel here is written in.
//
// A .cu is specialised by macros that its cuda.py chooses; TYPE is that of the elements, VEC how many make a vector.
#pragma once

#include "elements.cuh"

using Scalar = TYPE;
using Chunk = Vector<Scalar, VEC>;
using Index = long long;

#define INF __int_as_float(0x7f800000)
constexpr int WARP = 32;

// Over LANES lanes that lie STRIDE apart.
template <int LANES, int STRIDE = 1> __device__ float max_over(float value) {
#pragma unroll
  for (int offset = LANES / 2 * STRIDE; offset >= STRIDE; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

template <int LANES, int STRIDE = 1> __device__ float sum_over(float value) {
#pragma unroll
  for (int offset = LANES / 2 * STRIDE; offset >= STRIDE; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

// A `How` says how parts of a row or column add up: two of them (add), those of LANES lanes that lie STRIDE apart
// (over), and what the part of nothing is.
struct Sum {
  static __device__ float2 nothing() { return {0.f, 0.f}; }
  static __device__ float2 add(float2 a, float2 b) { return {a.x + b.x, 0.f}; }
  template <int LANES, int STRIDE> static __device__ float2 over(float2 part) {
    return {sum_over<LANES, STRIDE>(part.x), 0.f};
  }
};
