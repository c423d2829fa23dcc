// The sums of a matrix's columns, plain or weighted row by row, and the sum of one number a row: what couples the rows
// of fused_linear_rowsum. Forward those of the weight and of bias, backward dy @ x and that of dy.
//
// A cluster of CLUSTER CTAs has a strip of ACROSS * VEC columns and shares out the rows: ACROSS lanes to a row, STEP
// rows at a time. What a thread sums waits in a ring of its own in shared memory, STAGES vectors deep, so no thread
// waits for another before the end. The next kernel may start when AHEAD steps are left, since it takes a while.

#include "cluster.cuh"
#include "overlap.cuh"
#include "pairs.cuh"

using Extra = EXTRA;

constexpr int ITEMS = 8;

extern __shared__ Chunk s_ring[];

// `take` is called with each of the vectors `jump` elements apart, `mine` of them this thread's, and all threads of the
// CTA walk `steps`.
template <typename Take>
__device__ void walk(const Scalar* from, Index jump, int mine, int steps, const Take& take) {
#if STAGES
  Chunk* s_mine = s_ring + threadIdx.x;
  int asked = 0, slot = 0;
  const auto ask = [&] {
    if (asked++ < mine) s_mine[slot * THREADS].copy_async(from);
    Chunk::commit_copies();
    from += jump;
  };
  for (slot = 0; slot < STAGES; ++slot) ask();
  slot = 0;
  for (int step = 0; step < steps; ++step) {
    Chunk::wait_copies<STAGES - 1>();
    take(step, s_mine[slot * THREADS]);
    ask();
    if (++slot == STAGES) slot = 0;
  }
#else
  for (int step = 0; step < steps; step += ITEMS) {
    Chunk r_next[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (step + i < mine) r_next[i].load_streaming(from + i * jump);
    }
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (step + i < steps) take(step + i, r_next[i]);
    }
    from += ITEMS * jump;
  }
#endif
}

// g_sums has one float a column and, last, the sum of `extra`, which is null where there is none; WEIGHTED: each row
// times its extra.
// Half of a multiprocessor's registers are the next kernel's.
extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
column_sums(const Scalar* g_matrix, const Extra* g_extra, float* g_sums, Index rows, Index width, Index pitch,
            Index extra_pitch) {
  const int lane = threadIdx.x % ACROSS, warp = threadIdx.x / WARP;
  int rank = 0;
#if CLUSTER > 1
  // CTAs of a cluster learn here that their peers run.
  cluster_announce();
  rank = cluster_rank();
#endif
  const bool leading = blockIdx.x < CLUSTER;
  const Index column = (Index(blockIdx.x / CLUSTER) * ACROSS + lane) * VEC;
  const Index start = Index(rank) * DOWN, first = start + threadIdx.x / ACROSS;
  const bool live = column < width;
  const auto steps_from = [&](Index row) { return rows > row ? int((rows - row + STEP - 1) / STEP) : 0; };
  const int steps = steps_from(start), mine = steps_from(first);

  // A lane holds the extra of one in ACROSS steps, and asks for its next one that many ahead.
  const bool extras = g_extra && (WEIGHTED || leading);
  const auto extra_at = [&](int step) {
    return extras && step < mine ? widen(g_extra[(first + Index(step) * STEP) * extra_pitch]) : 0.f;
  };
  float r_sums[VEC] = {}, held = 0.f, next = extra_at(lane);
  double shared = 0.;
  if (steps <= AHEAD) let_next_kernel_start();
  walk(g_matrix + first * pitch + column, STEP * pitch, live ? mine : 0, steps, [&](int step, Chunk chunk) {
    if (step + AHEAD == steps) let_next_kernel_start();
    if (step % ACROSS == 0) {
      held = next;
      shared += held;
      next = extra_at(step + ACROSS + lane);
    }
    const float factor = WEIGHTED ? __shfl_sync(0xffffffffu, held, step % ACROSS, ACROSS) : 1.f;
    if (live && step < mine) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) r_sums[j] += factor * chunk[j];
    }
  });

  __shared__ float2 s_warps[WARPS][PAIRS];
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    r_sums[j] = sum_over<WARP / ACROSS, ACROSS>(r_sums[j]);
    if (threadIdx.x % WARP < ACROSS) reinterpret_cast<float*>(s_warps[warp])[j * ACROSS + lane] = r_sums[j];
  }
#pragma unroll
  for (int offset = WARP / 2; offset; offset /= 2) shared += __shfl_xor_sync(0xffffffffu, shared, offset);
  if (threadIdx.x % WARP == 0) reinterpret_cast<double&>(s_warps[warp][SHARED]) = shared;
  __syncthreads();
#if CLUSTER > 1
  __shared__ float2 s_parts[CLUSTER][PAIRS];
  cluster_wait();
  for (int pair = threadIdx.x; pair < PAIRS; pair += THREADS) {
    store_remote(s_parts[rank] + pair, 0, add_up<WARPS>(s_warps, pair));
  }
  cluster_sync();
  if (rank) return;
  for (int pair = threadIdx.x; pair < PAIRS; pair += THREADS) s_warps[0][pair] = add_up<CLUSTER>(s_parts, pair);
#else
  for (int pair = threadIdx.x; pair < PAIRS; pair += THREADS) s_warps[0][pair] = add_up<WARPS>(s_warps, pair);
#endif
  __syncthreads();
  if (threadIdx.x < ACROSS && live) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) r_sums[j] = reinterpret_cast<const float*>(s_warps[0])[j * ACROSS + lane];
    write_elements(g_sums + column, r_sums);
  }
  if (leading && threadIdx.x == 0) g_sums[width] = float(reinterpret_cast<const double&>(s_warps[0][SHARED]));
}
