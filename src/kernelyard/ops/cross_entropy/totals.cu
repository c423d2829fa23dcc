// What all rows come to, in a fixed order: how many count, and the sum of their losses. One cluster of CTAs reads them
// all, a warp's neighbours side by side.

#include "loss.cuh"
#include "row.cuh"

// The factor that a mean (or sum: 1) puts on every row, for the kernel after this one, which meanwhile may read its
// logits.
extern "C" __global__ void __launch_bounds__(THREADS)
totals_scale(const Target* gtarget, float* gkept, Index rows, Index mean, Index ignored) {
  let_next_kernel_start();
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
  let_next_kernel_start();
  await_previous_kernel();
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

// The same from what CTAs added up already, (sum, rows that count) each.
extern "C" __global__ void __launch_bounds__(THREADS)
totals_sums(const float2* gsums, Scalar* gloss, float* gkept, Index rows, Index mean, Index sums) {
  await_previous_kernel();
  const Place at;
  float2 total = {0.f, 0.f};
#pragma unroll 8
  for (Index i = at.rank * THREADS + at.thread; i < sums; i += THREADS * CLUSTER) {
    const float2 sum = gsums[i];
    total.x += sum.x;
    total.y += sum.y;
  }
  total = at.totals(total);
  if (at.rank == 0 && at.thread == 0) {
    gloss[0] = narrow<Scalar>(mean ? total.x / total.y : total.x);
    if (gkept) gkept[2 * rows] = mean ? 1.f / total.y : 1.f;
  }
}

// And from the parts of rows that several CTAs share, a warp to a row; without REDUCED every row's loss.
extern "C" __global__ void __launch_bounds__(THREADS)
totals_join(const Scalar* gx, const Target* gtarget, Scalar* gloss, float2* gkept, const Part* gparts, Index rows,
            Index length, Index pitch, Index run, Index jump, Index ignored, Index smoothing, Index z, Index chunks,
            Index mean) {
  const Place at;
  const Options how(smoothing, z);
  float2 total = {0.f, 0.f};
  await_previous_kernel();
  for (Index row = Index(blockIdx.x) * WARPS + at.warp; row < rows; row += Index(gridDim.x) * WARPS) {
    const Aim aim(gtarget, row, rows, length, ignored);
    const float logit = aim.logit(gx + start_of(row, rows, pitch, run, jump));
    float2 pair = {-INF, 0.f};
    float over = 0.f;
    for (Index chunk = at.lane; chunk < chunks; chunk += WARP) {
      const Part& part = gparts[row * chunks + chunk];
      pair = combine(pair, part.pair);
      over += part.over;
    }
    pair = combine_over<WARP>(pair);
    if (SMOOTH) over = sum_over<WARP>(over);
    if (at.lane == 0) {
      const float loss = loss_of(aim, pair, logit, over, length, how);
      if (!REDUCED) gloss[row] = narrow<Scalar>(loss);
      total.x += loss;
      total.y += aim.counts;
      if (gkept) gkept[row] = pair;
    }
  }
  if (!REDUCED) return;
  total = at.totals(total);
  if (at.rank == 0 && at.thread == 0) {
    gloss[0] = narrow<Scalar>(mean ? total.x / total.y : total.x);
    if (gkept) gkept[rows].x = mean ? 1.f / total.y : 1.f;
  }
}
