// Norms of rows that no cluster holds, each spread over the shared memory of the whole chip and read once.

#include "forward_lines.cuh"
#include "chip.cuh"

struct Forward {
  using How = Spread;
  using Part = Moments;
  const Scalar *gx, *gr;
  Affine affine;
  Out* gy;
  Scalar* gt;
  float *g_mean, *g_rstd, eps;
  Index length, pitch;
  Stats stats;

  __device__ const Scalar* from(Index row) const { return gx + row * pitch; }
  __device__ void ask(const Span& span, Index row, Chunk* s_x) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (!span.touches(i)) continue;
      s_x[i * THREADS].copy_async(from(row) + span.first(i));
      if (ADD) s_x[TILE + i * THREADS].copy_async(gr + row * pitch + span.first(i));
    }
  }
  __device__ void take(const Span& span, Index row, Chunk* s_x, Moments& part) const {
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      r_x[i] = s_x[i * THREADS];
      if (ADD) {
        add_to(r_x[i], s_x[TILE + i * THREADS]);
        s_x[i * THREADS] = r_x[i];
        span.write(i, gt + row * length, r_x[i]);
      }
    }
    part = Spread::add(part, moments_of<0, ITEMS>(span, [&](int i) -> const Chunk& { return r_x[i]; }));
  }
  __device__ void know(Index row, Moments total) {
    stats = Stats(total, length, eps);
    if (blockIdx.x == 0 && threadIdx.x == 0) stats.leave(g_mean, g_rstd, row);
  }
  __device__ void write(const Span& span, Index row, const Chunk* s_x) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) write_normalised(affine, stats, span, i, s_x[i * THREADS], gy + row * length);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS + 2 * WARP)
chip_forward(const Scalar* gx, const Scalar* gr, const Weight* gw, const Weight* gb, Out* gy, Scalar* gt,
             float* g_mean, float* g_rstd, Word* g_parts, Index rows, Index length, Index pitch, Index eps,
             Index offset, Index share) {
  const Affine affine{gw, gb, as_float(offset)};
  const Forward work{gx, gr, affine, gy, gt, g_mean, g_rstd, as_float(eps), length, pitch, Stats()};
  over_chip(work, g_parts, rows, length, share);
}
