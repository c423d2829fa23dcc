// What the norms' kernels along rows share.
#pragma once

#include "forward.cuh"
#include "row.cuh"

// A total of two vectors, rounded, in place of the first.
__device__ inline void add_to(Chunk& x, const Chunk& residual) {
  float total[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) total[j] = x[j] + residual[j];
  x.pack(total);
}

// The squared distances of one vector's elements from a mean, added up.
__device__ inline float squares_about(float mean, const Span& span, int i, const Chunk& x) {
  float sum = 0.f, values[VEC];
  span.read(i, x, mean, values);
#pragma unroll
  for (int j = 0; j < VEC; ++j) sum += (values[j] - mean) * (values[j] - mean);
  return sum;
}

// Of the vectors FIRST to LAST of a thread: the mean first, then the distances from it.
template <int FIRST, int LAST, typename Held> __device__ Moments moments_of(const Span& span, Held held) {
  float count = 0.f, mean = 0.f, squares = 0.f, values[VEC];
  if (CENTRED) {
#pragma unroll
    for (int i = FIRST; i < LAST; ++i) {
      span.read(i, held(i), 0.f, values);
      count += float(span.count(i));
#pragma unroll
      for (int j = 0; j < VEC; ++j) mean += values[j];
    }
    mean = count ? mean / count : 0.f;
  }
#pragma unroll
  for (int i = FIRST; i < LAST; ++i) squares += squares_about(mean, span, i, held(i));
  return {count, mean, squares, 0.f};
}

// The whole row's, from what each of its threads has.
__device__ inline Moments over_row(const Place& at, Moments part) {
  part = at.meet(Spread::over<LANES, 1>(part), Spread::nothing(), Spread::add);
  return Place::ALONE ? part : Spread::over<WARP, 1>(part);
}

// w and b of a vector, read when they are wanted: they stay in L1 and L2.
__device__ inline void parameters(const Weight* from, const Span& span, int i, float (&values)[VEC]) {
  if (VECTORS && !SHIFTED) {
    read_elements(span.at(from, i), values);
  } else {
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      if (span.holds(i, j)) values[j] = widen(from[span.first(i) + j]);
    }
  }
}

__device__ inline void write_normalised(const Affine& affine, Stats stats, const Span& span, int i, const Chunk& x,
                                        Out* gy) {
  if (!span.touches(i)) return;
  float values[VEC], w[VEC], b[VEC];
  if (HAS_WEIGHT) parameters(affine.gw, span, i, w);
  if (HAS_BIAS) parameters(affine.gb, span, i, b);
#pragma unroll
  for (int j = 0; j < VEC; ++j) values[j] = affine.apply(stats.hat(x[j]), w[j], b[j]);
  span.write(i, gy, values);
}
