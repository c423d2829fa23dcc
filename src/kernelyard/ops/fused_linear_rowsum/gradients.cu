// dx = dy (x) sums, every row of dweight = v, every element of dbias = dy's sum. The two last are column_sums' and known
// when it has ended; dx is written before.
//
// ACROSS threads to a row, ACROSS * VEC columns to a panel; the CTAs of a panel share out the rows.

#include "overlap.cuh"
#include "reduce.cuh"

using Weight = WEIGHT;
using Bias = BIAS;

constexpr int DOWN = THREADS / ACROSS;
constexpr int LANES = ACROSS < WARP ? ACROSS : WARP;

// gdb is null where that gradient is not wanted; g_v has v and, last, dy's sum.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
write_gradients(const Scalar* gdy, const float* g_sums, const float* g_v, Scalar* gdx, Weight* gdw, Bias* gdb,
                Index rows, Index outputs, Index width, Index dy_pitch, Index panels) {
  const int lane = threadIdx.x % LANES;
  const Index column = (blockIdx.x % panels * ACROSS + threadIdx.x % ACROSS) * VEC;
  const Index first = blockIdx.x / panels * DOWN + threadIdx.x / ACROSS, jump = gridDim.x / panels * DOWN;
  const bool live = column < width;
  float values[VEC], r_sums[VEC] = {};
  if (live) read_elements(g_sums + column, r_sums);
  Scalar* to_dx = gdx + first * width + column;
  // A lane holds the dy of one in LANES rows, and asks for its next one that many ahead. All lanes of a warp go on for
  // as long as its first row does.
  const auto dy_at = [&](Index row) { return row < rows ? widen(gdy[row * dy_pitch]) : 0.f; };
  float next = dy_at(first + lane * jump);
  const Index lead = blockIdx.x / panels * DOWN + threadIdx.x / WARP * WARP / ACROSS;
  for (Index done = 0; lead + done < rows; done += LANES * jump) {
    const float held = next;
    next = dy_at(first + done + (LANES + lane) * jump);
#pragma unroll 8
    for (int i = 0; i < LANES; ++i) {
      const float factor = __shfl_sync(0xffffffffu, held, i, LANES);
      if (live && first + done + i * jump < rows) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) values[j] = factor * r_sums[j];
        write_elements<Scalar, VEC, true>(to_dx, values);
      }
      to_dx += jump * width;
    }
  }
  await_previous_kernel();
  if (live) {
    read_elements(g_v + column, values);
    Weight* to = gdw + first * width + column;
    for (Index row = first; row < outputs; row += jump) {
      write_elements<Weight, VEC, true>(to, values);
      to += jump * width;
    }
  }
  if (gdb) {
    const Bias sum = narrow<Bias>(g_v[width]);
    const Index threads = Index(gridDim.x) * THREADS;
    for (Index row = Index(blockIdx.x) * THREADS + threadIdx.x; row < outputs; row += threads) gdb[row] = sum;
  }
}
