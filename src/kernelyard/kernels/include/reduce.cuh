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
