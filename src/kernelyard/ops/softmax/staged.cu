// Softmax of long rows held in shared memory: copied there without passing through registers, so that more of them are
// on their way at once than registers would hold. Each thread reads back what it copied itself.

#include "online.cuh"
#include "row.cuh"

extern __shared__ __align__(128) Chunk s_held[];

// The first half of a thread's vectors is worked on while the second is on its way.
constexpr int HALF = (ITEMS + 1) / 2;

extern "C" __global__ void __launch_bounds__(THREADS)
staged_forward(const Scalar* gx, Scalar* gy, Index rows, Index length, Index pitch) {
  const Place at;
  const Index row = blockIdx.x / CLUSTER;
  gx += row * pitch;
  gy += row * length;
  const Span span(gx, at.rank * THREADS + at.thread, THREADS * CLUSTER, length);
  Chunk* s_x = s_held + at.thread;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) span.copy_async(i, s_x[i * THREADS], span.at(gx, i));
    if (i == HALF - 1) Chunk::commit_copies();
  }
  Chunk::commit_copies();
  float2 part = {-INF, 0.f};
  float values[VEC];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (i == 0) Chunk::wait_copies<1>();
    if (i == HALF) Chunk::wait_copies<0>();
    span.read(i, s_x[i * THREADS], -INF, values);
    take(part, values);
  }
  part = over_row(at, part);
  const float max = finite(part.x), scale = 1.f / part.y;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const Chunk chunk = s_x[i * THREADS];
#pragma unroll
    for (int j = 0; j < VEC; ++j) values[j] = exp_below(chunk[j], max) * scale;
    span.write(i, gy, values);
  }
}

// dy goes to registers where both would leave room for one CTA only (ONE_IN_REGISTERS).
extern "C" __global__ void __launch_bounds__(THREADS)
staged_backward(const Scalar* gdy, const Scalar* gy, Scalar* gdx, Index rows, Index length, Index) {
  const Place at;
  const Index row = blockIdx.x / CLUSTER;
  gdy += row * length;
  gy += row * length;
  gdx += row * length;
  const Span span(gy, at.rank * THREADS + at.thread, THREADS * CLUSTER, length);
  Chunk* s_y = s_held + at.thread;
  Chunk* s_dy = s_y + ITEMS * THREADS;
  Chunk r_dy[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) {
      span.copy_async(i, s_y[i * THREADS], span.at(gy, i));
      if (ONE_IN_REGISTERS) {
        span.load(i, r_dy[i], span.at(gdy, i));
      } else {
        span.copy_async(i, s_dy[i * THREADS], span.at(gdy, i));
      }
    }
    if (i == HALF - 1) Chunk::commit_copies();
  }
  Chunk::commit_copies();
  float dot = 0.f;
  float dy[VEC], y[VEC];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (i == 0) Chunk::wait_copies<1>();
    if (i == HALF) Chunk::wait_copies<0>();
    span.read(i, ONE_IN_REGISTERS ? r_dy[i] : s_dy[i * THREADS], 0.f, dy);
    span.read(i, s_y[i * THREADS], 0.f, y);
#pragma unroll
    for (int j = 0; j < VEC; ++j) dot += dy[j] * y[j];
  }
  dot = at.total(dot);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const Chunk held_dy = ONE_IN_REGISTERS ? r_dy[i] : s_dy[i * THREADS], held_y = s_y[i * THREADS];
#pragma unroll
    for (int j = 0; j < VEC; ++j) dy[j] = held_y[j] * (held_dy[j] - dot);
    span.write(i, gdx, dy);
  }
}
