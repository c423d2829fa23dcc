// Softmax of rows held in registers: each element is read once and its exponential taken once.

#include "online.cuh"
#include "row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS * ROWS)
rows_forward(const Scalar* gx, Scalar* gy, Index rows, Index length, Index pitch) {
  const Place at;
  const Index row = Index(blockIdx.x / CLUSTER) * ROWS + threadIdx.x / THREADS;
  gx += row * pitch;
  gy += row * length;
  const Span span(gx, at.rank * THREADS + at.thread, THREADS * CLUSTER, row < rows ? length : 0);

  Chunk r_x[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) span.load(i, r_x[i], gx + span.first(i));
  }
  float r_e[ITEMS][VEC];
  float2 part = {-INF, 0.f};
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    span.read(i, r_x[i], -INF, r_e[i]);
#pragma unroll
    for (int j = 0; j < VEC; ++j) part.x = fmaxf(part.x, r_e[i][j]);
  }
  // Exponentials are taken once, against the thread's own maximum, and scaled to the row's when that is known.
  const float mine = part.x, own = finite(mine);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) part.y += r_e[i][j] = exp_below(r_e[i][j], own);
  }
  part = over_row(at, part);
  const float scale = exp_below(mine, finite(part.x)) / part.y;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) r_e[i][j] *= scale;
    span.write(i, gy, r_e[i]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS * ROWS)
rows_backward(const Scalar* gdy, const Scalar* gy, Scalar* gdx, Index rows, Index length, Index) {
  const Place at;
  const Index row = Index(blockIdx.x / CLUSTER) * ROWS + threadIdx.x / THREADS;
  gdy += row * length;
  gy += row * length;
  gdx += row * length;
  const Span span(gy, at.rank * THREADS + at.thread, THREADS * CLUSTER, row < rows ? length : 0);

  // Held as they were loaded: widened, both would not fit in the registers.
  Chunk r_dy[ITEMS], r_y[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) {
      span.load(i, r_dy[i], gdy + span.first(i));
      span.load(i, r_y[i], gy + span.first(i));
    }
  }
  float dot = 0.f;
  float dy[VEC], y[VEC];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    span.read(i, r_dy[i], 0.f, dy);
    span.read(i, r_y[i], 0.f, y);
#pragma unroll
    for (int j = 0; j < VEC; ++j) dot += dy[j] * y[j];
  }
  dot = at.total(dot);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) dy[j] = r_y[i][j] * (r_dy[i][j] - dot);
    span.write(i, gdx, dy);
  }
}
