// The backward of the norms in two reads of dy and x, for what no pipeline holds: rows of any length on any chip, and
// columns (a dim that is not the last). First the sums of each row or column, then dx and the parts of dweight, dbias.
//
// A tensor is outer x length x inner, normalised over `length`; rows have inner = 1 and lie a pitch apart, columns are
// contiguous. What belongs to a row or column has the index outer * inner + position.

#include "backward.cuh"

constexpr int WARPS = THREADS / WARP;
constexpr int ALONG = 4;

// For each row or column.
struct Found { Stats stats; Means means; };

__device__ inline void add(float2& sums, float x, float dy, float w, Stats stats) {
  const float g = weighted(dy, w);
  sums.x += g;
  sums.y += g * normalised(x, stats);
}

__device__ inline Stats stats_of(const float* gmean, const float* grstd, Index at) {
  return {CENTRED ? gmean[at] : 0.f, grstd[at]};
}

__device__ inline void read_weight(const Weight* gw, float offset, float (&w)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) w[j] = HAS_WEIGHT ? offset + widen(gw[j]) : 1.f;
}

// CTA (row, chunk): the sums of every gridDim.y-th tile of a row.
extern "C" __global__ void __launch_bounds__(THREADS)
split_rows_sums(const Dy* gdy, const Scalar* gx, const Weight* gw, const float* gmean, const float* grstd,
                float2* gsums, Index length, Index dy_pitch, Index x_pitch, Index offset) {
  const Index row = blockIdx.x;
  const Stats stats = stats_of(gmean, grstd, row);
  gdy += row * dy_pitch;
  gx += row * x_pitch;
  float2 sums = {0.f, 0.f};
  for (Index tile = blockIdx.y; tile * THREADS * VEC < length; tile += gridDim.y) {
    const Index column = (tile * THREADS + threadIdx.x) * VEC;
    if (column >= length) break;
    float dy[VEC], x[VEC], w[VEC];
    read_elements(gdy + column, dy);
    read_elements(gx + column, x);
    read_weight(gw + column, __int_as_float(offset), w);
#pragma unroll
    for (int j = 0; j < VEC; ++j) add(sums, x[j], dy[j], w[j], stats);
  }
  sums = {sum_over<WARP>(sums.x), sum_over<WARP>(sums.y)};
  __shared__ float2 s_sums[WARPS];
  if (threadIdx.x % WARP == 0) s_sums[threadIdx.x / WARP] = sums;
  __syncthreads();
  if (threadIdx.x > 0) return;
#pragma unroll
  for (int warp = 1; warp < WARPS; ++warp) sums = {sums.x + s_sums[warp].x, sums.y + s_sums[warp].y};
  gsums[row * gridDim.y + blockIdx.y] = sums;
}

// CTA (outer, tile of columns; chunk): warps share out the chunk's elements of WARP * VEC columns side by side.
extern "C" __global__ void __launch_bounds__(THREADS)
split_columns_sums(const Dy* gdy, const Scalar* gx, const Weight* gw, const float* gmean, const float* grstd,
                   float2* gsums, Index length, Index inner, Index tiles, Index offset) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const Index outer = blockIdx.x / tiles, column = (blockIdx.x % tiles * WARP + lane) * VEC;
  const bool live = column < inner;
  float2 sums[VEC] = {};
  if (live) {
    Stats stats[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) stats[j] = stats_of(gmean, grstd, outer * inner + column + j);
    const Index step = Index(gridDim.y) * WARPS;
#pragma unroll ALONG
    for (Index l = Index(blockIdx.y) * WARPS + warp; l < length; l += step) {
      float dy[VEC], x[VEC];
      const Index at = (outer * length + l) * inner + column;
      read_elements(gdy + at, dy);
      read_elements(gx + at, x);
      const float w = HAS_WEIGHT ? __int_as_float(offset) + widen(gw[l]) : 1.f;
#pragma unroll
      for (int j = 0; j < VEC; ++j) add(sums[j], x[j], dy[j], w, stats[j]);
    }
  }
  __shared__ float2 s_sums[WARPS][WARP * VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) s_sums[warp][lane * VEC + j] = sums[j];
  __syncthreads();
  for (int c = threadIdx.x; c < WARP * VEC; c += THREADS) {
    const Index place = blockIdx.x % tiles * WARP * VEC + c;
    if (place >= inner) break;
    float2 sum = {0.f, 0.f};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum = {sum.x + s_sums[w][c].x, sum.y + s_sums[w][c].y};
    gsums[(outer * inner + place) * gridDim.y + blockIdx.y] = sum;
  }
}

// A thread per row or column: its statistics and its means from the sums of its chunks.
extern "C" __global__ void __launch_bounds__(THREADS)
split_means(const float2* gsums, const float* gmean, const float* grstd, float4* gfound, Index count, Index chunks,
            Index length) {
  const Index at = Index(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= count) return;
  float2 sums = {0.f, 0.f};
#pragma unroll 8
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    const float2 part = gsums[at * chunks + chunk];
    sums = {sums.x + part.x, sums.y + part.y};
  }
  const Stats stats = stats_of(gmean, grstd, at);
  gfound[at] = {stats.mean, stats.rstd, sums.x / length, sums.y / length};
}

__device__ inline Found found_at(const float4* gfound, Index at) {
  const float4 found = gfound[at];
  return {{found.x, found.y}, {found.z, found.w}};
}

// CTA (tile of columns, part): THREADS * VEC columns of every gridDim.y-th row.
extern "C" __global__ void __launch_bounds__(THREADS)
split_rows_apply(const Dy* gdy, const Scalar* gx, const Scalar* gtotal, const Weight* gw, const float4* gfound,
                 Scalar* gdx, float* gparts, Index rows, Index length, Index dy_pitch, Index x_pitch,
                 Index total_pitch, Index offset) {
  const Index column = (Index(blockIdx.x) * THREADS + threadIdx.x) * VEC;
  if (column >= length) return;
  float w[VEC], dw[VEC] = {}, db[VEC] = {};
  read_weight(gw + column, __int_as_float(offset), w);
#pragma unroll 2
  for (Index row = blockIdx.y; row < rows; row += gridDim.y) {
    const Found found = found_at(gfound, row);
    float dy[VEC], x[VEC], total[VEC];
    read_elements(gdy + row * dy_pitch + column, dy);
    read_elements(gx + row * x_pitch + column, x);
    if (HAS_TOTAL) read_elements(gtotal + row * total_pitch + column, total);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float x_hat = normalised(x[j], found.stats);
      dw[j] += dy[j] * as_multiplied(x_hat);
      db[j] += dy[j];
      const float g = weighted(dy[j], w[j]);
      x[j] = input_gradient(g, x_hat, found.stats, found.means) + (HAS_TOTAL ? total[j] : 0.f);
    }
    Chunk chunk;
    chunk.pack(x);
    chunk.store(gdx + row * length + column);
  }
  gparts += blockIdx.y * length + column;
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    if (HAS_WEIGHT) gparts[j] = dw[j];
    if (HAS_BIAS) gparts[HAS_WEIGHT * gridDim.y * length + j] = db[j];
  }
}

// CTA (tile of elements along `length`, part): each warp has ALONG elements and walks over columns, WARP * VEC at a
// time, every gridDim.y-th such step of all outer * inner.
extern "C" __global__ void __launch_bounds__(THREADS)
split_columns_apply(const Dy* gdy, const Scalar* gx, const Scalar* gtotal, const Weight* gw, const float4* gfound,
                    Scalar* gdx, float* gparts, Index count, Index length, Index inner, Index tiles, Index offset) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const Index first = (Index(blockIdx.x) * WARPS + warp) * ALONG;
  float w[ALONG], dw[ALONG] = {}, db[ALONG] = {};
#pragma unroll
  for (int i = 0; i < ALONG; ++i) {
    w[i] = HAS_WEIGHT && first + i < length ? __int_as_float(offset) + widen(gw[first + i]) : 1.f;
  }
  for (Index step = blockIdx.y; step < count * tiles; step += gridDim.y) {
    const Index outer = step / tiles, column = (step % tiles * WARP + lane) * VEC;
    if (column >= inner) continue;
    Found found[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) found[j] = found_at(gfound, outer * inner + column + j);
#pragma unroll
    for (int i = 0; i < ALONG; ++i) {
      if (first + i >= length) break;
      const Index at = (outer * length + first + i) * inner + column;
      float dy[VEC], x[VEC], total[VEC];
      read_elements(gdy + at, dy);
      read_elements(gx + at, x);
      if (HAS_TOTAL) read_elements(gtotal + at, total);
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const float x_hat = normalised(x[j], found[j].stats);
        dw[i] += dy[j] * as_multiplied(x_hat);
        db[i] += dy[j];
        const float g = weighted(dy[j], w[i]);
        x[j] = input_gradient(g, x_hat, found[j].stats, found[j].means) + (HAS_TOTAL ? total[j] : 0.f);
      }
      Chunk chunk;
      chunk.pack(x);
      chunk.store(gdx + at);
    }
  }
#pragma unroll
  for (int i = 0; i < ALONG; ++i) {
    const float dw_sum = sum_over<WARP>(dw[i]), db_sum = sum_over<WARP>(db[i]);
    if (lane == 0 && first + i < length) {
      float* part = gparts + blockIdx.y * length + first + i;
      if (HAS_WEIGHT) part[0] = dw_sum;
      if (HAS_BIAS) part[HAS_WEIGHT * gridDim.y * length] = db_sum;
    }
  }
}
