// Norms along a dim that is not the last: BX x BY threads work along the outer of two dims, BX vectors side by side.
//
// Columns that fit in the registers of a CTA are read once (columns_*). Longer ones are cut into chunks of `tiles`
// steps each, which meet through device memory between two kernels (columns_part_*, columns_write_*).

#include "columns.cuh"
#include "forward.cuh"

// Takes ITEMS rows of this thread's columns: the mean first, then the distances from it.
__device__ inline void take_step(const Columns& at, Index first, const Chunk (&r_x)[ITEMS], Moments (&parts)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    float count = 0.f, mean = 0.f, squares = 0.f;
    if (CENTRED) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        if (at.holds(first, i)) mean += r_x[i][j], count += 1.f;
      }
      mean = count ? mean / count : 0.f;
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) squares += (r_x[i][j] - mean) * (r_x[i][j] - mean);
    }
    parts[j] = Spread::add(parts[j], {count, mean, squares, 0.f});
  }
}

__device__ inline void fill(Moments (&parts)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) parts[j] = Spread::nothing();
}

// Plain loads: streaming ones cost 2 % of the bandwidth (64 channels of 512 x 512).
__device__ inline void load_step(const Columns& at, Index first, const Scalar* gx, Chunk (&r_x)[ITEMS]) {
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (at.holds(first, i)) r_x[i].load(gx + at.at(first, i));
  }
}

struct Writer {
  Affine affine;
  Stats stats[VEC];

  __device__ Writer(const Affine& affine, const Moments (&parts)[VEC], Index length, float eps) : affine(affine) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) stats[j] = Stats(parts[j], length, eps);
  }
  __device__ void leave(const Columns& at, float* g_mean, float* g_rstd) const {
    if (!at.live || at.ty != 0) return;
#pragma unroll
    for (int j = 0; j < VEC; ++j) stats[j].leave(g_mean, g_rstd, at.outer * at.inner + at.column + j);
  }
  __device__ void write(const Columns& at, Index first, const Chunk (&r_x)[ITEMS], Out* gy) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (!at.holds(first, i)) continue;
      const float w = HAS_WEIGHT ? widen(affine.gw[at.row(first, i)]) : 0.f;
      const float b = HAS_BIAS ? widen(affine.gb[at.row(first, i)]) : 0.f;
      float values[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = affine.apply(stats[j].hat(r_x[i][j]), w, b);
      write_elements<Out, VEC, true>(gy + at.at(first, i), values);
    }
  }
};

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_forward(const Scalar* gx, const Scalar*, const Weight* gw, const Weight* gb, Out* gy, Scalar*, float* g_mean,
                float* g_rstd, Index length, Index inner, Index eps, Index offset) {
  const Columns at(length, inner);
  Chunk r_x[ITEMS];
  load_step(at, 0, gx, r_x);
  Moments parts[VEC];
  fill(parts);
  take_step(at, 0, r_x, parts);
  at.meet<Spread>(parts);
  const Writer writer({gw, gb, as_float(offset)}, parts, length, as_float(eps));
  writer.leave(at, g_mean, g_rstd);
  writer.write(at, 0, r_x, gy);
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_part_forward(const Scalar* gx, const Scalar*, const Weight*, const Weight*, Out*, Scalar*, float*, float*,
                     Moments* g_parts, Index length, Index inner, Index, Index, Index tiles) {
  const Columns at(length, inner);
  Moments parts[VEC];
  fill(parts);
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
    load_step(at, first, gx, r_x);
    take_step(at, first, r_x, parts);
  }
  at.meet<Spread>(parts);
  at.leave(g_parts, parts);
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_write_forward(const Scalar* gx, const Scalar*, const Weight* gw, const Weight* gb, Out* gy, Scalar*,
                      float* g_mean, float* g_rstd, const Moments* g_parts, Index length, Index inner, Index eps,
                      Index offset, Index tiles) {
  const Columns at(length, inner);
  Moments parts[VEC];
  fill(parts);
  at.gather<Spread>(g_parts, parts);
  at.meet<Spread>(parts);
  const Writer writer({gw, gb, as_float(offset)}, parts, length, as_float(eps));
  if (blockIdx.y == 0) writer.leave(at, g_mean, g_rstd);
  for (Index tile = tiles - 1; tile >= 0; --tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(first, i)) r_x[i].load_streaming(gx + at.at(first, i));
    }
    writer.write(at, first, r_x, gy);
  }
}
