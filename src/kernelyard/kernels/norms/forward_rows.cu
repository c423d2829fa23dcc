// Norms of rows held in registers: each element is read once.

#include "forward_lines.cuh"

extern "C" __global__ void __launch_bounds__(THREADS * ROWS)
rows_forward(const Scalar* gx, const Scalar* gr, const Weight* gw, const Weight* gb, Out* gy, Scalar* gt,
             float* g_mean, float* g_rstd, Index rows, Index length, Index pitch, Index eps, Index offset) {
  const Place at;
  const Index row = Index(blockIdx.x / CLUSTER) * ROWS + threadIdx.x / THREADS;
  gx += row * pitch;
  gr += row * pitch;
  gy += row * length;
  gt += row * length;
  const Span span(gx, at.rank * THREADS + at.thread, THREADS * CLUSTER, row < rows ? length : 0);

  Chunk r_x[ITEMS], r_r[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) {
      span.load(i, r_x[i], gx + span.first(i));
      if (ADD) span.load(i, r_r[i], gr + span.first(i));
    }
  }
  if (ADD) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      add_to(r_x[i], r_r[i]);
      span.write(i, gt, r_x[i]);
    }
  }
  const auto held = [&](int i) -> const Chunk& { return r_x[i]; };
  const Stats stats(over_row(at, moments_of<0, ITEMS>(span, held)), length, as_float(eps));
  if (row < rows && at.rank == 0 && at.thread == 0) stats.leave(g_mean, g_rstd, row);
  const Affine affine{gw, gb, as_float(offset)};
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) write_normalised(affine, stats, span, i, r_x[i], gy);
}
