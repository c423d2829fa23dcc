// The backward of layer norm and RMS norm, element by element, in fp32.
//
// With x_hat = (x - mean) * rstd and g = dy * (offset + w):  dx = rstd * (g - mean(g) - x_hat * mean(g * x_hat)),
// dw = sum of dy * x_hat over rows, db = sum of dy. RMS norm has no mean(g): it is not CENTRED. Macros: TYPE of x and
// dx, DY of dy, WEIGHT of w, dw and db, ROUNDED of the x_hat that the forward multiplied with w; VEC elements a vector;
// HAS_WEIGHT, HAS_BIAS, HAS_TOTAL (a gradient that is added to dx).
#pragma once

#include "reduce.cuh"

using Dy = DY;
using Weight = WEIGHT;
using Rounded = ROUNDED;

constexpr int PLANES = HAS_WEIGHT + HAS_BIAS;

// Of a row or column.
struct Stats { float mean, rstd; };
struct Means { float g, g_x_hat; };

__device__ inline float normalised(float x, Stats stats) {
  return (CENTRED ? x - stats.mean : x) * stats.rstd;
}

__device__ inline float as_multiplied(float x_hat) { return widen(narrow<Rounded>(x_hat)); }

// g enters its row's mean rounded, so it is rounded where the mean is taken off, too: fused into that subtraction, a row
// of one element would have 1e-5 for a gradient of 0.
__device__ inline float weighted(float dy, float w) { return HAS_WEIGHT ? __fmul_rn(dy, w) : dy; }

__device__ inline float input_gradient(float g, float x_hat, Stats stats, Means means) {
  return stats.rstd * ((CENTRED ? g - means.g : g) - x_hat * means.g_x_hat);
}
