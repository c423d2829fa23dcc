// The forward of layer norm and RMS norm, element by element, in fp32.
//
// y = rounded((x - mean) * rstd) * (offset + w) + b, the mean and b only for layer norm (CENTRED). Macros: TYPE of x,
// WEIGHT of w and b, ROUNDED of what is multiplied with w, OUT of y; HAS_WEIGHT, HAS_BIAS; VECTORS where w and b may be
// read as vectors; ADD where x is a total: of two inputs, rounded to TYPE and written too.
#pragma once

#include "reduce.cuh"

using Weight = WEIGHT;
using Rounded = ROUNDED;
using Out = OUT;

// Of some elements: how many, their mean, and the sum of squared distances from it. Without a mean to take off (RMS
// norm), of squares. Variance is never a difference of two large sums.
struct __align__(16) Moments {
  float count, mean, squares, unused;
};

struct Spread {
  static __device__ Moments nothing() { return {0.f, 0.f, 0.f, 0.f}; }
  static __device__ Moments add(Moments a, Moments b) {
    if (!CENTRED) return {0.f, 0.f, a.squares + b.squares, 0.f};
    const float count = a.count + b.count, share = count ? b.count / count : 0.f, apart = b.mean - a.mean;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share, 0.f};
  }
  template <int LANES, int STRIDE> static __device__ Moments over(Moments part) {
    if (!CENTRED) return {0.f, 0.f, sum_over<LANES, STRIDE>(part.squares), 0.f};
    // Every lane takes part in every exchange, those of nothing too.
    const float count = sum_over<LANES, STRIDE>(part.count), sum = sum_over<LANES, STRIDE>(part.count * part.mean);
    const float mean = count ? sum / count : 0.f, apart = part.mean - mean;
    return {count, mean, sum_over<LANES, STRIDE>(part.squares + part.count * apart * apart), 0.f};
  }
};

// Numbers that cross as 64-bit arguments.
__device__ inline float as_float(Index bits) { return __uint_as_float(unsigned(bits)); }

struct Stats {
  float mean, rstd;

  __device__ Stats(Moments whole, Index length, float eps)
      : mean(whole.mean), rstd(rsqrtf(whole.squares / float(length) + eps)) {}
  __device__ Stats() : mean(0.f), rstd(0.f) {}
  __device__ void leave(float* g_mean, float* g_rstd, Index line) const {
    if (!g_rstd) return;
    if (CENTRED) g_mean[line] = mean;
    g_rstd[line] = rstd;
  }
  __device__ float hat(float x) const {
    return widen(narrow<Rounded>((CENTRED ? x - mean : x) * rstd));
  }
};

struct Affine {
  const Weight *gw, *gb;
  float offset;

  __device__ float apply(float hat, float w, float b) const {
    // Only an RMS norm has an offset.
    if (HAS_WEIGHT) hat *= CENTRED ? w : offset + w;
    return HAS_BIAS ? hat + b : hat;
  }
};
