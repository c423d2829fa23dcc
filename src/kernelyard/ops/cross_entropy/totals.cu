// What all rows come to, in a fixed order: how many count, and the sum of their losses. One cluster of CTAs reads them
// all, a warp's neighbours side by side.

#include "loss.cuh"

// The factor that a mean (or sum: 1) puts on every row, for the kernel after this one, which meanwhile may read its
// logits.
extern "C" __global__ void __launch_bounds__(THREADS)
totals_scale(const Target* gtarget, float* gkept, Index rows, Index mean, Index ignored) {
  start_next();
  const Place at;
  float count = 0.f;
#pragma unroll 16
  for (Index row = at.rank * THREADS + at.thread; row < rows; row += THREADS * CLUSTER) {
    count += gtarget[row] != ignored;
  }
  count = at.total(count);
  if (at.rank == 0 && at.thread == 0) gkept[2 * rows] = mean ? 1.f / count : 1.f;
}

// The loss; with `gkept` also the factor that its reduction puts on every row.
extern "C" __global__ void __launch_bounds__(THREADS)
totals_loss(const float* glosses, Scalar* gloss, float* gkept, Index rows, Index mean) {
  start_next();
  wait_for_previous();
  const Place at;
  float2 total = {0.f, 0.f};
#pragma unroll 16
  for (Index row = at.rank * THREADS + at.thread; row < rows; row += THREADS * CLUSTER) {
    const float loss = glosses[row];
    total.x += loss;
    total.y += !is_ignored(loss);
  }
  total = at.totals(total);
  if (at.rank == 0 && at.thread == 0) {
    gloss[0] = narrow<Scalar>(mean ? total.x / total.y : total.x);
    if (gkept) gkept[2 * rows] = mean ? 1.f / total.y : 1.f;
  }
}
