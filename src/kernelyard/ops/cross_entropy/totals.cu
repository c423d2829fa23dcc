// What all rows come to, in a fixed order: how many count, and the sum of their losses. One cluster of CTAs reads them
// all, a warp's neighbours side by side.

#include "loss.cuh"

// How many rows count and, with `glosses`, what they lose.
__device__ float2 add_up(const Place& at, const float* glosses, const Target* gtarget, Index rows, Index ignored) {
  float count = 0.f, sum = 0.f;
#pragma unroll 4
  for (Index row = at.rank * THREADS + at.thread; row < rows; row += THREADS * CLUSTER) {
    count += gtarget[row] != ignored;
    if (glosses) sum += glosses[row];
  }
  return at.totals({sum, count});
}

// The factor that a mean puts on every row, for the kernel after this one, which meanwhile may read its logits.
extern "C" __global__ void __launch_bounds__(THREADS)
totals_scale(const Target* gtarget, float* gkept, Index rows, Index ignored) {
  start_next();
  const Place at;
  const float2 total = add_up(at, nullptr, gtarget, rows, ignored);
  if (at.rank == 0 && at.thread == 0) gkept[2 * rows] = 1.f / total.y;
}

// The loss; with `gkept` also the factor that its reduction puts on every row.
extern "C" __global__ void __launch_bounds__(THREADS)
totals_loss(const float* glosses, const Target* gtarget, Scalar* gloss, float* gkept, Index rows, Index ignored,
            Index mean) {
  wait_for_previous();
  const Place at;
  const float2 total = add_up(at, glosses, gtarget, rows, ignored);
  if (at.rank == 0 && at.thread == 0) {
    gloss[0] = narrow<Scalar>(mean ? total.x / total.y : total.x);
    if (gkept) gkept[2 * rows] = mean ? 1.f / total.y : 1.f;
  }
}
