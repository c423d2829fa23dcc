// Norms of long rows held in the shared memory of a cluster, copied there without passing through registers. Each
// thread reads back what it copied itself.

#include "forward_lines.cuh"

extern __shared__ Chunk s_held[];

// The first half of a thread's vectors is worked on while the second is on its way.
constexpr int HALF = (ITEMS + 1) / 2;

extern "C" __global__ void __launch_bounds__(THREADS)
staged_forward(const Scalar* gx, const Scalar* gr, const Weight* gw, const Weight* gb, Out* gy, Scalar* gt,
               float* g_mean, float* g_rstd, Index rows, Index length, Index pitch, Index eps, Index offset) {
  const Place at;
  const Index row = blockIdx.x / CLUSTER;
  gx += row * pitch;
  gr += row * pitch;
  gy += row * length;
  gt += row * length;
  const Span span(gx, at.rank * THREADS + at.thread, THREADS * CLUSTER, length);
  Chunk* s_x = s_held + at.thread;
  Chunk* s_r = s_x + ITEMS * THREADS;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) {
      s_x[i * THREADS].copy_async(gx + span.first(i));
      if (ADD) s_r[i * THREADS].copy_async(gr + span.first(i));
    }
    if (i == HALF - 1) Chunk::commit_copies();
  }
  Chunk::commit_copies();
  const auto held = [&](int i) -> Chunk& { return s_x[i * THREADS]; };
  const auto add = [&](int first, int last) {
#pragma unroll
    for (int i = first; i < last; ++i) {
      Chunk total = held(i);
      add_to(total, s_r[i * THREADS]);
      held(i) = total;
      span.write(i, gt, total);
    }
  };
  Chunk::wait_copies<1>();
  if (ADD) add(0, HALF);
  Moments part = moments_of<0, HALF>(span, held);
  Chunk::wait_copies<0>();
  if (ADD) add(HALF, ITEMS);
  if (HALF < ITEMS) part = Spread::add(part, moments_of<HALF, ITEMS>(span, held));
  const Stats stats(over_row(at, part), length, as_float(eps));
  if (at.rank == 0 && at.thread == 0) stats.leave(g_mean, g_rstd, row);
  const Affine affine{gw, gb, as_float(offset)};
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) write_normalised(affine, stats, span, i, held(i), gy);
}
