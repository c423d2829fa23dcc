// What a row of logits comes to: its loss, and the numbers that its gradient is made of.
//
// TARGET is the targets' type; REDUCED says that a sum over the rows follows. SMOOTH and Z say whether there is label smoothing and a z-loss; their sizes come as the
// bits of doubles, since every argument of a kernel is 64 bits wide.
#pragma once

#include "online.cuh"
#include "overlap.cuh"

using Target = TARGET;

template <bool> struct LossOf { using Type = Scalar; };
template <> struct LossOf<true> { using Type = float; };
// What a row's loss is written as.
using Loss = LossOf<REDUCED>::Type;

// Where row `row` starts: rows lie `pitch` apart, and so do those of a run of `run` rows, with runs `jump` apart.
__device__ inline Index start_of(Index row, Index rows, Index pitch, Index run, Index jump) {
  if (run >= rows) return row * pitch;
  const Index i_run = row / run;
  return i_run * jump + (row - i_run * run) * pitch;
}

// What a row is held against. A target that is no class is `known` to be none: it is never an index.
struct Aim {
  Index target = 0;
  bool counts = false, known = false;

  Aim() = default;
  __device__ Aim(const Target* gtarget, Index row, Index rows, Index length, Index ignored) {
    if (row >= rows) return;
    target = gtarget[row];
    counts = target != ignored;
    known = target >= 0 && target < length;
  }
  // The target's logit, by which no loss is read where there is no such class.
  __device__ float logit(const Scalar* gx) const { return counts && known ? widen(gx[target]) : 0.f; }
};

// A row that counts for nothing leaves minus zero, which adds nothing to a sum and which no other row leaves: the sum over
// the rows counts them without another look at their targets.
constexpr float IGNORED = -0.f;
__device__ inline bool is_ignored(float loss) { return __float_as_uint(loss) == 0x80000000u; }

// What a CTA found of a row that it shares with others: (maximum, sum of exponentials), the sum of x - pivot, and, where
// columns are read, the target's logit.
struct Part {
  float2 pair;
  float over, logit;
};

struct Options {
  float smoothing, z;
  __device__ Options(Index smoothing, Index z)
      : smoothing(__longlong_as_double(smoothing)), z(__longlong_as_double(z)) {}
};

// Deviations are summed up from the target's logit: the maximum is not known until the end, and from zero a row of
// large logits would lose its digits.
__device__ inline float pivot_of(float logit) { return fabsf(logit) < INF ? logit : 0.f; }

// Adds up x - pivot of a loaded vector's elements.
template <typename Span>
__device__ void add_over(float& over, const Span& span, int i, const float (&values)[VEC], float pivot) {
  if (span.covers(i)) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) over += values[j] - pivot;
  } else if (SHIFTED && span.touches(i)) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      if (span.holds(i, j)) over += values[j] - pivot;
    }
  }
}

// The loss of a row from its pair (maximum, sum of exp(x - maximum)) and the sum of x - pivot.
__device__ inline float loss_of(const Aim& aim, float2 pair, float logit, float over, Index length, const Options& how) {
  if (!aim.counts) return REDUCED ? IGNORED : 0.f;
  if (!aim.known) return INF - INF;
  const float log_sum = logf(pair.y);
  float loss = log_sum + (pair.x - logit);
  if (SMOOTH) {
    const float spread = log_sum + (pair.x - pivot_of(logit)) - over / float(length);
    loss = (1.f - how.smoothing) * loss + how.smoothing * spread;
  }
  if (Z) loss += how.z * (pair.x + log_sum) * (pair.x + log_sum);
  return loss + 0.f;
}

// A gradient is exp(x - maximum) * factor - share, and less by `hit` at the target; `scale` is what comes from outside.
struct Gradient {
  float factor = 0.f, share = 0.f, hit = 0.f;

  Gradient() = default;
  __device__ Gradient(const Aim& aim, float2 pair, float scale, Index length, const Options& how) {
    if (!aim.counts) return;
    factor = scale / pair.y;
    if (Z) factor *= 1.f + 2.f * how.z * (pair.x + logf(pair.y));
    if (!aim.known) factor = INF - INF;
    if (SMOOTH) share = scale * how.smoothing / float(length);
    hit = SMOOTH ? scale * (1.f - how.smoothing) : scale;
  }
  // From exponentials, of the vector whose first element has index `first`. The target's element is rounded once, like
  // every other.
  template <typename Offset> __device__ void apply(float (&e)[VEC], Index target, Offset first) const {
#pragma unroll
    for (int j = 0; j < VEC; ++j) e[j] = e[j] * factor - share;
    const Offset place = Offset(target) - first;
    if (place >= 0 && place < VEC) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        if (j == place) e[j] -= hit;
      }
    }
  }
};

#ifdef SCALED
// The factor of a mean, from the kernel before this one: asked for while the row is on its way, since at the end a look
// at it would cost 2 % of the bandwidth in rows of 262144.
__device__ inline float scale_of(const float2* gkept, Index rows) {
  if (!SCALED) return 1.f;
  await_previous_kernel();
  return gkept[rows].x;
}
#endif
