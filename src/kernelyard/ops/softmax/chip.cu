// Softmax of rows that no cluster holds, each spread over the shared memory of the whole chip and read once.

#include "chip.cuh"
#include "online.cuh"

struct NoParameters {
  static constexpr bool KEPT = false;
  template <int AT, typename Work> __device__ __forceinline__ void keep(const Work&, const Span&) {}
  template <int AT, typename Work> __device__ __forceinline__ void fetch(const Work&, const Span&) {}
};

// A thread's vectors of a tile of COUNT tensors.
template <int COUNT> struct Tile {
  Chunk of[COUNT][ITEMS];

  __device__ __forceinline__ void hold(const Chunk* s_held) {
#pragma unroll
    for (int tensor = 0; tensor < COUNT; ++tensor) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) of[tensor][i] = s_held[tensor * TILE + i * THREADS];
    }
  }
};

struct Forward {
  using How = Softmax;
  using Part = float2;
  using Held = Tile<1>;
  using Parameters = NoParameters;
  const Scalar* gx;
  Scalar* gy;
  Index length, pitch;
  float max = 0.f, scale = 0.f;

  __device__ const Scalar* from(Index row) const { return gx + row * pitch; }
  __device__ void ask(const Span& span, Index row, Chunk* s_x) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (span.touches(i)) span.copy_async(i, s_x[i * THREADS], from(row) + span.first(i));
    }
  }
  __device__ void take(const Span& span, Index, const Chunk* s_x, float2& part) const {
    float values[ITEMS][VEC], all[ITEMS * VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      span.read(i, s_x[i * THREADS], -INF, values[i]);
#pragma unroll
      for (int j = 0; j < VEC; ++j) all[i * VEC + j] = values[i][j];
    }
    ::take(part, all);
  }
  static __device__ float2 whole(float2 part) { return part; }
  __device__ void know(Index, float2 total) {
    max = finite(total.x);
    scale = 1.f / total.y;
  }
  __device__ __forceinline__ void write(const Span& span, Index row, const Held& held, const Parameters&) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const Chunk& x = held.of[0][i];
      float values[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = exp_below(x[j], max) * scale;
      span.write(i, gy + row * length, values);
    }
  }
};

struct Backward {
  using How = Sum;
  using Part = float2;
  using Held = Tile<2>;
  using Parameters = NoParameters;
  const Scalar *gdy, *gy;
  Scalar* gdx;
  Index length;
  float dot = 0.f;

  __device__ const Scalar* from(Index row) const { return gy + row * length; }
  __device__ void ask(const Span& span, Index row, Chunk* s_held) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (!span.touches(i)) continue;
      span.copy_async(i, s_held[i * THREADS], gdy + row * length + span.first(i));
      span.copy_async(i, s_held[TILE + i * THREADS], gy + row * length + span.first(i));
    }
  }
  __device__ void take(const Span& span, Index, const Chunk* s_held, float2& part) const {
    float dy[VEC], y[VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      span.read(i, s_held[i * THREADS], 0.f, dy);
      span.read(i, s_held[TILE + i * THREADS], 0.f, y);
#pragma unroll
      for (int j = 0; j < VEC; ++j) part.x += dy[j] * y[j];
    }
  }
  static __device__ float2 whole(float2 part) { return part; }
  __device__ void know(Index, float2 total) { dot = total.x; }
  __device__ __forceinline__ void write(const Span& span, Index row, const Held& held, const Parameters&) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const Chunk &dy = held.of[0][i], &y = held.of[1][i];
      float values[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = y[j] * (dy[j] - dot);
      span.write(i, gdx + row * length, values);
    }
  }
};

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
chip_forward(const Scalar* gx, Scalar* gy, Word* g_parts, Index rows, Index length, Index pitch, Index share) {
  Forward work{gx, gy, length, pitch};
  over_chip(work, g_parts, rows, length, share);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
chip_backward(const Scalar* gdy, const Scalar* gy, Scalar* gdx, Word* g_parts, Index rows, Index length, Index,
              Index share) {
  Backward work{gdy, gy, gdx, length};
  over_chip(work, g_parts, rows, length, share);
}
