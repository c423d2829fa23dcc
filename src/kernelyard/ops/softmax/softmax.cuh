// The arithmetic of softmax in fp32: exponentials below a maximum, and the pair (maximum, sum of exp(x - maximum)).
//
// Every .cu here is specialised by macros that cuda.py chooses: TYPE of the elements, VEC of them to a vector, ITEMS
// vectors to a thread, and the launch's shape.
#pragma once

#include "elements.cuh"

using Scalar = TYPE;
using Chunk = Vector<Scalar, VEC>;
using Index = long long;

constexpr float LOG2_E = 1.4426950408889634f;
#define INF __int_as_float(0x7f800000)
constexpr int WARP = 32;

__device__ inline float exp2_fast(float value) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

// exp(value - max). The difference comes first, so that no product overflows at the ends of the range.
__device__ inline float exp_below(float value, float max) { return exp2_fast((value - max) * LOG2_E); }

// A maximum to subtract: minus infinity, of nothing or of masked elements only, would make NaN of their zeros.
__device__ inline float finite(float max) { return max == -INF ? 0.f : max; }

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

// (max, sum of exp(x - max)) over LANES neighbouring lanes.
template <int LANES> __device__ float2 combine_over(float2 part) {
  const float max = max_over<LANES>(part.x);
  return {max, sum_over<LANES>(part.y * exp_below(part.x, finite(max)))};
}

// Online: takes values into a running (max, sum of exp(x - max)).
template <int COUNT> __device__ void take(float2& part, const float (&values)[COUNT]) {
  float max = part.x;
#pragma unroll
  for (int j = 0; j < COUNT; ++j) max = fmaxf(max, values[j]);
  const float own = finite(max);
  part.y *= exp_below(part.x, own);
#pragma unroll
  for (int j = 0; j < COUNT; ++j) part.y += exp_below(values[j], own);
  part.x = max;
}

__device__ inline float2 combine(float2 a, float2 b) {
  const float max = fmaxf(a.x, b.x), own = finite(max);
  return {max, a.y * exp_below(a.x, own) + b.y * exp_below(b.x, own)};
}
