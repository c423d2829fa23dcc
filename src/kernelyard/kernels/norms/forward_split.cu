// Norms of rows too long for the chip: many CTAs to a row, which meet through device memory between two kernels.

#include "forward_lines.cuh"

// CTA x of row y owns `tiles` tiles of ITEMS * THREADS vectors. The second kernel walks them backwards: what the first
// read last is still in L2.
__device__ inline Index position(Index chunk, Index tiles, Index tile, int thread) {
  return (chunk * tiles + tile) * ITEMS * THREADS + thread;
}

extern "C" __global__ void __launch_bounds__(THREADS)
split_part_forward(const Scalar* gx, const Scalar* gr, const Weight* gw, const Weight* gb, Out* gy, Scalar* gt,
                   float* g_mean, float* g_rstd, Moments* g_parts, Index length, Index pitch, Index eps, Index offset,
                   Index tiles) {
  const Place at;
  gx += blockIdx.y * pitch;
  gr += blockIdx.y * pitch;
  gt += blockIdx.y * length;
  Moments part = Spread::nothing();
  for (Index tile = 0; tile < tiles; ++tile) {
    const Span span(gx, position(blockIdx.x, tiles, tile, at.thread), THREADS, length);
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
    part = Spread::add(part, moments_of<0, ITEMS>(span, [&](int i) -> const Chunk& { return r_x[i]; }));
  }
  part = over_row(at, part);
  if (at.thread == 0) g_parts[Index(blockIdx.y) * gridDim.x + blockIdx.x] = part;
}

extern "C" __global__ void __launch_bounds__(THREADS)
split_write_forward(const Scalar* gx, const Scalar* gr, const Weight* gw, const Weight* gb, Out* gy, Scalar* gt,
                    float* g_mean, float* g_rstd, const Moments* g_parts, Index length, Index pitch, Index eps,
                    Index offset, Index tiles) {
  const Place at;
  const Index chunk = gridDim.x - 1 - blockIdx.x;
  gx = ADD ? gt + blockIdx.y * length : gx + blockIdx.y * pitch;
  gy += blockIdx.y * length;
  g_parts += Index(blockIdx.y) * gridDim.x;
  Moments part = Spread::nothing();
  for (int p = at.lane; p < gridDim.x; p += WARP) part = Spread::add(part, g_parts[p]);
  const Stats stats(Spread::over<WARP, 1>(part), length, as_float(eps));
  if (chunk == 0 && at.thread == 0) stats.leave(g_mean, g_rstd, blockIdx.y);
  const Affine affine{gw, gb, as_float(offset)};
  for (Index tile = tiles - 1; tile >= 0; --tile) {
    const Span span(gx, position(chunk, tiles, tile, at.thread), THREADS, length);
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (span.touches(i)) span.load(i, r_x[i], gx + span.first(i));
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) write_normalised(affine, stats, span, i, r_x[i], gy);
  }
}
