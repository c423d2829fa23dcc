// The reduced loss of few rows in one launch: a warp to a row, and one cluster for all of them, which adds up what its
// warps found. What it saves is the host's time for a second launch; a chip has more than the cluster's bandwidth, which
// is why rows must be few.

#include "loss.cuh"
#include "row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
small_forward(const Scalar* gx, const Target* gtarget, Scalar* gloss, float2* gkept, Index rows, Index length,
              Index pitch, Index run, Index jump, Index ignored, Index smoothing, Index z, Index mean) {
  const Place at;
  const Options how(smoothing, z);
  float2 total = {0.f, 0.f};
  for (Index row = at.warp * CLUSTER + at.rank; row < rows; row += WARPS * CLUSTER) {
    const Aim aim(gtarget, row, rows, length, ignored);
    const Scalar* gx_row = gx + start_of(row, rows, pitch, run, jump);
    const Offset vectors = aim.counts ? (length + (SHIFTED ? 2 * VEC - 2 : VEC - 1)) / VEC : 0;
    const float logit = SMOOTH || at.lane == 0 ? aim.logit(gx_row) : 0.f;
    float2 part = {-INF, 0.f};
    float over = 0.f;
    for (Offset first = 0; first < vectors; first += ITEMS * WARP) {
      const Span span(gx_row, first + at.lane, WARP, length);
      Chunk r_x[ITEMS];
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        if (span.touches(i)) span.load(i, r_x[i], gx_row + span.first(i));
      }
      float values[VEC];
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        span.read(i, r_x[i], -INF, values);
        if (SMOOTH) add_over(over, span, i, values, pivot_of(logit));
        take(part, values);
      }
    }
    part = combine_over<WARP>(part);
    if (SMOOTH) over = sum_over<WARP>(over);
    if (at.lane == 0) {
      total.x += loss_of(aim, part, logit, over, length, how);
      total.y += aim.counts;
      if (gkept) gkept[row] = part;
    }
  }
  total = at.totals(total);
  if (at.rank == 0 && at.thread == 0) {
    gloss[0] = narrow<Scalar>(mean ? total.x / total.y : total.x);
    if (gkept) gkept[rows].x = mean ? 1.f / total.y : 1.f;
  }
}
