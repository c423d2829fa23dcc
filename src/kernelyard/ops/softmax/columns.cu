// Softmax along a dim that is not the last: BX x BY threads work along the outer of two dims, BX vectors side by side.

#include "softmax.cuh"

constexpr int COLS = BX * VEC;
constexpr int BY_WARP = WARP / BX;
constexpr int WARPS = BX * BY / WARP;

// This thread's VEC columns and every BY-th row of them, ITEMS at a time.
struct Columns {
  int tx = threadIdx.x % BX, ty = threadIdx.x / BX;
  Index base, length, inner;
  bool live;

  __device__ Columns(Index length, Index inner) : length(length), inner(inner) {
    const Index tiles = (inner + COLS - 1) / COLS;
    const Index column = blockIdx.x % tiles * COLS + tx * VEC;
    live = column < inner;
    base = blockIdx.x / tiles * length * inner + column;
  }
  __device__ bool holds(Index first, int i) const { return live && row(first, i) < length; }
  __device__ Index row(Index first, int i) const { return first + i * BY + ty; }
  __device__ Index at(Index first, int i) const { return base + row(first, i) * inner; }

  // Adds up the parts of the BY threads of each column and gives every thread its own columns' totals.
  template <typename Combine> __device__ void meet(float2 (&parts)[VEC], Combine add) const {
    __shared__ float2 s_parts[WARPS][COLS];
#pragma unroll
    for (int offset = BX; offset < WARP; offset *= 2) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const float2 other = {__shfl_xor_sync(0xffffffffu, parts[j].x, offset),
                              __shfl_xor_sync(0xffffffffu, parts[j].y, offset)};
        parts[j] = add(parts[j], other);
      }
    }
    if (threadIdx.x % WARP < BX) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) s_parts[threadIdx.x / WARP][tx * VEC + j] = parts[j];
    }
    __syncthreads();
    for (int column = threadIdx.x; column < COLS; column += BX * BY) {
      float2 total = s_parts[0][column];
      for (int warp = 1; warp < WARPS; ++warp) total = add(total, s_parts[warp][column]);
      s_parts[0][column] = total;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VEC; ++j) parts[j] = s_parts[0][tx * VEC + j];
  }
};

// HELD: the columns fit in registers and are read once. Otherwise a second pass reads them again.
extern "C" __global__ void __launch_bounds__(BX * BY)
columns_forward(const Scalar* gx, Scalar* gy, Index length, Index inner) {
  const Columns at(length, inner);
  Chunk r_x[ITEMS];
  float2 parts[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) parts[j] = {-INF, 0.f};
  for (Index first = 0; first < (HELD ? 1 : length); first += ITEMS * BY) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) r_x[i].load_kept(gx + at.at(first, i));
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      float values[ITEMS];
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) values[i] = at.holds(first, i) ? r_x[i][j] : -INF;
      take(parts[j], values);
    }
  }
  at.meet(parts, combine);
#pragma unroll
  for (int j = 0; j < VEC; ++j) parts[j] = {finite(parts[j].x), 1.f / parts[j].y};
  for (Index first = 0; first < (HELD ? 1 : length); first += ITEMS * BY) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) {
        if (!HELD) r_x[i].load(gx + at.at(first, i));
        float values[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) values[j] = exp_below(r_x[i][j], parts[j].x) * parts[j].y;
        Chunk chunk;
        chunk.pack(values);
        chunk.store(gy + at.at(first, i));
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_backward(const Scalar* gdy, const Scalar* gy, Scalar* gdx, Index length, Index inner) {
  const Columns at(length, inner);
  Chunk r_dy[ITEMS], r_y[ITEMS];
  float2 dots[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) dots[j] = {0.f, 0.f};
  for (Index first = 0; first < (HELD ? 1 : length); first += ITEMS * BY) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) {
        r_dy[i].load_kept(gdy + at.at(first, i));
        r_y[i].load_kept(gy + at.at(first, i));
#pragma unroll
        for (int j = 0; j < VEC; ++j) dots[j].x += r_dy[i][j] * r_y[i][j];
      }
    }
  }
  at.meet(dots, [](float2 a, float2 b) { return float2{a.x + b.x, 0.f}; });
  for (Index first = 0; first < (HELD ? 1 : length); first += ITEMS * BY) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) {
        if (!HELD) {
          r_dy[i].load(gdy + at.at(first, i));
          r_y[i].load(gy + at.at(first, i));
        }
        float values[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) values[j] = r_y[i][j] * (r_dy[i][j] - dots[j].x);
        Chunk chunk;
        chunk.pack(values);
        chunk.store(gdx + at.at(first, i));
      }
    }
  }
}
