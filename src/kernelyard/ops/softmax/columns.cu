// Softmax along a dim that is not the last: BX x BY threads work along the outer of two dims, BX vectors side by side.
//
// Columns that fit in the registers of a CTA are read once (columns_*). Longer ones are cut into chunks of `tiles`
// steps each, which meet through device memory between two kernels (columns_part_*, columns_write_*).

#include "columns.cuh"
#include "online.cuh"

__device__ inline void fill(float2 (&parts)[VEC], float2 value) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) parts[j] = value;
}

__device__ inline void invert(float2 (&parts)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) parts[j] = {finite(parts[j].x), 1.f / parts[j].y};
}

__device__ inline void take_step(const Columns& at, Index first, const Chunk (&r_x)[ITEMS], float2 (&parts)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    float values[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) values[i] = at.holds(first, i) ? r_x[i][j] : -INF;
    take(parts[j], values);
  }
}

// `parts` are (maximum, 1 / sum) here.
__device__ inline void write_softmax(Scalar* to, const Chunk& x, const float2 (&parts)[VEC]) {
  float values[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) values[j] = exp_below(x[j], parts[j].x) * parts[j].y;
  Chunk chunk;
  chunk.pack(values);
  chunk.store_streaming(to);
}

__device__ inline void write_gradient(Scalar* to, const Chunk& dy, const Chunk& y, const float2 (&dots)[VEC]) {
  float values[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) values[j] = y[j] * (dy[j] - dots[j].x);
  Chunk chunk;
  chunk.pack(values);
  chunk.store_streaming(to);
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_forward(const Scalar* gx, Scalar* gy, Index length, Index inner) {
  const Columns at(length, inner);
  Chunk r_x[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (at.holds(0, i)) r_x[i].load_streaming(gx + at.at(0, i));
  }
  float2 parts[VEC];
  fill(parts, {-INF, 0.f});
  take_step(at, 0, r_x, parts);
  at.meet<Softmax>(parts);
  invert(parts);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (at.holds(0, i)) write_softmax(gy + at.at(0, i), r_x[i], parts);
  }
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_backward(const Scalar* gdy, const Scalar* gy, Scalar* gdx, Index length, Index inner) {
  const Columns at(length, inner);
  Chunk r_dy[ITEMS], r_y[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (at.holds(0, i)) {
      r_dy[i].load_streaming(gdy + at.at(0, i));
      r_y[i].load_streaming(gy + at.at(0, i));
    }
  }
  float2 dots[VEC];
  fill(dots, {0.f, 0.f});
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (at.holds(0, i)) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) dots[j].x += r_dy[i][j] * r_y[i][j];
    }
  }
  at.meet<Sum>(dots);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (at.holds(0, i)) write_gradient(gdx + at.at(0, i), r_dy[i], r_y[i], dots);
  }
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_part_forward(const Scalar* gx, Scalar*, float2* g_parts, Index length, Index inner, Index tiles) {
  const Columns at(length, inner);
  float2 parts[VEC];
  fill(parts, {-INF, 0.f});
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) r_x[i].load(gx + at.at(first, i));
    }
    take_step(at, first, r_x, parts);
  }
  at.meet<Softmax>(parts);
  at.leave(g_parts, parts);
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_write_forward(const Scalar* gx, Scalar* gy, const float2* g_parts, Index length, Index inner, Index tiles) {
  const Columns at(length, inner);
  float2 parts[VEC];
  fill(parts, {-INF, 0.f});
  at.gather<Softmax>(g_parts, parts);
  at.meet<Softmax>(parts);
  invert(parts);
  for (Index tile = tiles - 1; tile >= 0; --tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) r_x[i].load_streaming(gx + at.at(first, i));
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) write_softmax(gy + at.at(first, i), r_x[i], parts);
    }
  }
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_part_backward(const Scalar* gdy, const Scalar* gy, Scalar*, float2* g_parts, Index length, Index inner,
                      Index tiles) {
  const Columns at(length, inner);
  float2 dots[VEC];
  fill(dots, {0.f, 0.f});
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) {
        Chunk dy, y;
        dy.load(gdy + at.at(first, i));
        y.load(gy + at.at(first, i));
#pragma unroll
        for (int j = 0; j < VEC; ++j) dots[j].x += dy[j] * y[j];
      }
    }
  }
  at.meet<Sum>(dots);
  at.leave(g_parts, dots);
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_write_backward(const Scalar* gdy, const Scalar* gy, Scalar* gdx, const float2* g_parts, Index length,
                       Index inner, Index tiles) {
  const Columns at(length, inner);
  float2 dots[VEC];
  fill(dots, {0.f, 0.f});
  at.gather<Sum>(g_parts, dots);
  at.meet<Sum>(dots);
  for (Index tile = tiles - 1; tile >= 0; --tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) {
        Chunk dy, y;
        dy.load_streaming(gdy + at.at(first, i));
        y.load_streaming(gy + at.at(first, i));
        write_gradient(gdx + at.at(first, i), dy, y, dots);
      }
    }
  }
}
