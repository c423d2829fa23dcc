// The backward of the norms along a dim that is not the last, in one read: columns that fit the registers of a CTA,
// BX x BY threads with ITEMS elements of VEC columns each. CTAs stay and walk over columns with the same elements of
// `length`, so that dweight and dbias add up in registers.

#include "backward.cuh"
#include "columns.cuh"

struct Pair {
  static __device__ float2 nothing() { return {0.f, 0.f}; }
  static __device__ float2 add(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
  template <int LANES, int STRIDE> static __device__ float2 over(float2 part) {
    return {sum_over<LANES, STRIDE>(part.x), sum_over<LANES, STRIDE>(part.y)};
  }
};

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_held(const Dy* gdy, const Scalar* gx, const Scalar* gtotal, const Weight* gw, const float* gmean,
             const float* grstd, Scalar* gdx, float* gparts, Index outer, Index length, Index inner, Index offset) {
  Columns at(length, inner);
  float w[ITEMS], dw[ITEMS] = {}, db[ITEMS] = {};
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const bool held = HAS_WEIGHT && at.row(0, i) < length;
    w[i] = held ? __int_as_float(static_cast<int>(offset)) + widen(gw[at.row(0, i)]) : 1.f;
  }
  const Index tiles = (inner + COLS - 1) / COLS;
  const float inverse = 1.f / static_cast<float>(length);
  for (Index tile = blockIdx.x; tile < outer * tiles; tile += gridDim.x) {
    at.outer = tile / tiles;
    at.column = tile % tiles * COLS + at.tx * VEC;
    at.live = at.column < inner;

    Chunk r_x[ITEMS];
    Vector<Dy, VEC> r_dy[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(0, i)) {
        r_x[i].load_streaming(gx + at.at(0, i));
        r_dy[i].load_streaming(gdy + at.at(0, i));
      }
    }
    float mean[VEC] = {}, rstd[VEC] = {};
    if (at.live) {
      if (CENTRED) read_elements(gmean + at.outer * inner + at.column, mean);
      read_elements(grstd + at.outer * inner + at.column, rstd);
    }
    float2 sums[VEC] = {};
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(0, i)) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
          const float dy = r_dy[i][j], x_hat = normalised(r_x[i][j], {mean[j], rstd[j]}), g = weighted(dy, w[i]);
          sums[j] = Pair::add(sums[j], {g, g * x_hat});
          dw[i] += dy * as_multiplied(x_hat);
          db[i] += dy;
        }
      }
    }
    at.meet<Pair>(sums);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (at.holds(0, i)) {
        float dx[VEC];
        Chunk total;
        if (HAS_TOTAL) total.load_streaming(gtotal + at.at(0, i));
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
          const Stats stats = {mean[j], rstd[j]};
          const float x_hat = normalised(r_x[i][j], stats);
          const Means means = {sums[j].x * inverse, sums[j].y * inverse};
          dx[j] = input_gradient(weighted(r_dy[i][j], w[i]), x_hat, stats, means) + (HAS_TOTAL ? total[j] : 0.f);
        }
        Chunk result;
        result.pack(dx);
        result.store_streaming(gdx + at.at(0, i));
      }
    }
    __syncthreads();  // before the next tile's sums meet in the same place
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const float dw_sum = sum_over<BX>(dw[i]), db_sum = sum_over<BX>(db[i]);
    if (at.tx == 0 && at.row(0, i) < length) {
      float* part = gparts + blockIdx.x * length + at.row(0, i);
      if (HAS_WEIGHT) part[0] = dw_sum;
      if (HAS_BIAS) part[HAS_WEIGHT * gridDim.x * length] = db_sum;
    }
  }
}
