// The arithmetic of an online softmax in fp32: exponentials below a maximum, and the pair (maximum, sum of
// exp(x - maximum)), of which two combine without their elements.
#pragma once

#include "reduce.cuh"

constexpr float LOG2_E = 1.4426950408889634f;

__device__ inline float exp2_fast(float value) {
  float result;
  asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

// exp(value - max). The difference comes first, so that no product overflows at the ends of the range.
__device__ inline float exp_below(float value, float max) { return exp2_fast((value - max) * LOG2_E); }

// A maximum to subtract: minus infinity, of nothing or of masked elements only, would make NaN of their zeros.
__device__ inline float finite(float max) { return max == -INF ? 0.f : max; }

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

// The pair of a whole row, from what each of its threads took.
template <typename Place> __device__ float2 over_row(const Place& at, float2 part) {
  part = at.meet(combine_over<Place::LANES_OF_ROW>(part), float2{-INF, 0.f}, combine);
  return Place::ALONE ? part : combine_over<WARP>(part);
}

// How the parts of a row or column add up, as reduce.cuh wants it.
struct Softmax {
  static __device__ float2 nothing() { return {-INF, 0.f}; }
  static __device__ float2 add(float2 a, float2 b) { return combine(a, b); }
  template <int LANES, int STRIDE> static __device__ float2 over(float2 part) {
    const float max = max_over<LANES, STRIDE>(part.x);
    return {max, sum_over<LANES, STRIDE>(part.y * exp_below(part.x, finite(max)))};
  }
};
