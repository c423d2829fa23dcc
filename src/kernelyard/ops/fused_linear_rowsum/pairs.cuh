// What a cluster adds up over the rows, in pairs of floats: its columns, and in double the one sum that all columns
// share, because that one may cancel and has no neighbours whose errors are as large.
#pragma once

#include "reduce.cuh"

constexpr int DOWN = THREADS / ACROSS;
constexpr int STEP = CLUSTER * DOWN;
constexpr int WARPS = THREADS / WARP;
constexpr int PAIRS = ACROSS * VEC / 2 + 1;
constexpr int SHARED = PAIRS - 1;

template <int COUNT> __device__ float2 add_up(const float2 (&s_parts)[COUNT][PAIRS], int pair) {
  float2 sum = {0.f, 0.f};
  if (pair == SHARED) {
    double& shared = reinterpret_cast<double&>(sum);
    shared = 0.;
#pragma unroll
    for (int part = 0; part < COUNT; ++part) shared += reinterpret_cast<const double&>(s_parts[part][pair]);
  } else {
#pragma unroll
    for (int part = 0; part < COUNT; ++part) sum = {sum.x + s_parts[part][pair].x, sum.y + s_parts[part][pair].y};
  }
  return sum;
}
