// Softmax of rows too long for a cluster: many CTAs to a row, which meet through device memory between two kernels.

#include "online.cuh"
#include "row.cuh"

// CTA x of row y owns `tiles` tiles of ITEMS * THREADS vectors. The second kernel walks them backwards: what the first
// read last is still in L2.
struct Tiles {
  Index first;
  __device__ Tiles(Index chunk, Index tiles) : first(chunk * tiles) {}
  __device__ Index position(Index tile, int thread) const { return (first + tile) * ITEMS * THREADS + thread; }
};

extern "C" __global__ void __launch_bounds__(THREADS)
split_part_forward(const Scalar* gx, Scalar*, float2* g_parts, Index length, Index pitch, Index tiles) {
  const Place at;
  const Tiles own(blockIdx.x, tiles);
  gx += blockIdx.y * pitch;
  float2 part = {-INF, 0.f};
  for (Index tile = 0; tile < tiles; ++tile) {
    const Span span(gx, own.position(tile, at.thread), THREADS, length);
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (span.touches(i)) span.load(i, r_x[i], gx + span.first(i));
    }
    float values[VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      span.read(i, r_x[i], -INF, values);
      take(part, values);
    }
  }
  part = over_row(at, part);
  if (at.thread == 0) g_parts[Index(blockIdx.y) * gridDim.x + blockIdx.x] = part;
}

extern "C" __global__ void __launch_bounds__(THREADS)
split_write_forward(const Scalar* gx, Scalar* gy, const float2* g_parts, Index length, Index pitch, Index tiles) {
  const Place at;
  const Index chunk = gridDim.x - 1 - blockIdx.x;
  const Tiles own(chunk, tiles);
  gx += blockIdx.y * pitch;
  gy += blockIdx.y * length;
  g_parts += Index(blockIdx.y) * gridDim.x;
  float2 part = {-INF, 0.f};
  for (int p = at.lane; p < gridDim.x; p += WARP) part = combine(part, g_parts[p]);
  part = combine_over<WARP>(part);
  const float max = finite(part.x), scale = 1.f / part.y;
  for (Index tile = tiles - 1; tile >= 0; --tile) {
    const Span span(gx, own.position(tile, at.thread), THREADS, length);
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (span.touches(i)) span.load(i, r_x[i], gx + span.first(i));
    }
    float values[VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      span.read(i, r_x[i], -INF, values);
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = exp_below(values[j], max) * scale;
      span.write(i, gy, values);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
split_part_backward(const Scalar* gdy, const Scalar* gy, Scalar*, float* g_parts, Index length, Index, Index tiles) {
  const Place at;
  const Tiles own(blockIdx.x, tiles);
  gdy += blockIdx.y * length;
  gy += blockIdx.y * length;
  float dot = 0.f;
  for (Index tile = 0; tile < tiles; ++tile) {
    const Span span(gy, own.position(tile, at.thread), THREADS, length);
    Chunk r_dy[ITEMS], r_y[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (span.touches(i)) {
        span.load(i, r_dy[i], gdy + span.first(i));
        span.load(i, r_y[i], gy + span.first(i));
      }
    }
    float dy[VEC], y[VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      span.read(i, r_dy[i], 0.f, dy);
      span.read(i, r_y[i], 0.f, y);
#pragma unroll
      for (int j = 0; j < VEC; ++j) dot += dy[j] * y[j];
    }
  }
  dot = at.total(dot);
  if (at.thread == 0) g_parts[Index(blockIdx.y) * gridDim.x + blockIdx.x] = dot;
}

extern "C" __global__ void __launch_bounds__(THREADS)
split_write_backward(const Scalar* gdy, const Scalar* gy, Scalar* gdx, const float* g_parts, Index length, Index,
                     Index tiles) {
  const Place at;
  const Index chunk = gridDim.x - 1 - blockIdx.x;
  const Tiles own(chunk, tiles);
  gdy += blockIdx.y * length;
  gy += blockIdx.y * length;
  gdx += blockIdx.y * length;
  g_parts += Index(blockIdx.y) * gridDim.x;
  float dot = 0.f;
  for (int p = at.lane; p < gridDim.x; p += WARP) dot += g_parts[p];
  dot = sum_over<WARP>(dot);
  for (Index tile = tiles - 1; tile >= 0; --tile) {
    const Span span(gy, own.position(tile, at.thread), THREADS, length);
    Chunk r_dy[ITEMS], r_y[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (span.touches(i)) {
        span.load(i, r_dy[i], gdy + span.first(i));
        span.load(i, r_y[i], gy + span.first(i));
      }
    }
    float values[VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = r_y[i][j] * (r_dy[i][j] - dot);
      span.write(i, gdx, values);
    }
  }
}
