// The gradients of fused_linear_rowsum in one kernel, in strips of columns.
//
// A cluster of CLUSTER CTAs has a strip of ACROSS * VEC columns of every matrix and shares out the rows: ACROSS lanes to
// a row, CLUSTER * THREADS / ACROSS rows at a time. So dy @ x, which couples rows, is known where it is needed after one
// round trip within the cluster. WEIGHT and BIAS are the types of their elements, TYPE that of x.

#include "cluster.cuh"
#include "pairs.cuh"

using Weight = WEIGHT;
using Bias = BIAS;
using WeightChunk = Vector<Weight, VEC>;

struct Strip {
  int lane = threadIdx.x % ACROSS, rank = 0;
  bool leading = blockIdx.x < CLUSTER;
  Index column, first;
  bool live;

  // CTAs of a cluster learn here that their peers run.
  __device__ Strip(Index width) {
#if CLUSTER > 1
    cluster_announce();
    rank = cluster_rank();
#endif
    column = (Index(blockIdx.x / CLUSTER) * ACROSS + lane) * VEC;
    first = Index(rank) * DOWN + threadIdx.x / ACROSS;
    live = column < width;
  }
  // How many of `rows` rows are this thread's.
  __device__ int steps(Index rows) const { return rows > first ? int((rows - first + STEP - 1) / STEP) : 0; }

  // Adds up the columns of all threads that have this one's lane, and what all rows share. Called once; `meanwhile` is
  // what can be done while the cluster's parts are on their way.
  template <typename Meanwhile>
  __device__ void total(float (&values)[VEC], double& shared, const Meanwhile& meanwhile) const {
    __shared__ float2 s_warps[WARPS][PAIRS];
    const int warp = threadIdx.x / WARP;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      values[j] = sum_over<WARP / ACROSS, ACROSS>(values[j]);
      if (threadIdx.x % WARP < ACROSS) reinterpret_cast<float*>(s_warps[warp])[j * ACROSS + lane] = values[j];
    }
#pragma unroll
    for (int offset = WARP / 2; offset >= ACROSS; offset /= 2) shared += __shfl_xor_sync(0xffffffffu, shared, offset);
    if (threadIdx.x % WARP == 0) reinterpret_cast<double&>(s_warps[warp][SHARED]) = shared;
    __syncthreads();
#if CLUSTER > 1
    __shared__ float2 s_parts[CLUSTER][PAIRS];
    cluster_wait();
    for (int pair = threadIdx.x; pair < PAIRS; pair += THREADS) {
      const float2 sum = add_up<WARPS>(s_warps, pair);
#pragma unroll
      for (int peer = 0; peer < CLUSTER; ++peer) store_remote(s_parts[rank] + pair, peer, sum);
    }
    meanwhile();
    cluster_sync();
    for (int pair = threadIdx.x; pair < PAIRS; pair += THREADS) s_warps[0][pair] = add_up<CLUSTER>(s_parts, pair);
#else
    meanwhile();
    for (int pair = threadIdx.x; pair < PAIRS; pair += THREADS) s_warps[0][pair] = add_up<WARPS>(s_warps, pair);
#endif
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VEC; ++j) values[j] = reinterpret_cast<const float*>(s_warps[0])[j * ACROSS + lane];
    shared = reinterpret_cast<const double&>(s_warps[0][SHARED]);
  }
};

// A thread's rows of one matrix, ITEMS of them on their way: what has been used is loaded anew at once. `from` is in the
// first of them, `jump` elements from the next.
template <typename T, int COUNT> struct Rows {
  Vector<T, COUNT> r_next[ITEMS];
  const T* from;
  int left;

  __device__ Rows(const T* from, int left, Index jump) : from(from), left(left) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) load(i, jump);
  }
  __device__ void load(int i, Index jump) {
    if (left > 0) r_next[i].load_streaming(from);
    from += jump;
    --left;
  }
};

// dx = dy (x) sums while dy @ x gathers, which then is every row of dweight; dy's own sum is every element of dbias.
// gdx (with g_sums), gdw (with gx) and gdb are null where that gradient is not wanted.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
strips_backward(const Scalar* gdy, const Scalar* gx, const float* g_sums, Scalar* gdx, Weight* gdw, Bias* gdb,
                Index rows, Index outputs, Index width, Index x_pitch, Index dy_pitch) {
  const Strip at(width);
  const Index x_jump = STEP * x_pitch, dy_jump = STEP * dy_pitch;
  const int steps = at.steps(rows);
  Rows<Scalar, VEC> x(gx + at.first * x_pitch + at.column, gdw && at.live ? steps : 0, x_jump);
  Rows<Scalar, 1> dy(gdy + at.first * dy_pitch, steps, dy_jump);
  float r_sums[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) r_sums[j] = gdx && at.live ? g_sums[at.column + j] : 0.f;
  Scalar* to = gdx + at.first * width + at.column;
  const auto write_dx = [&](float factor) {
    if (gdx && at.live) {
      float values[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = factor * r_sums[j];
      Chunk made;
      made.pack(values);
      made.store_streaming(to);
    }
    to += STEP * width;
  };
  // dx is written ITEMS rows late, so that the last of it hides the cluster's meeting.
  float r_v[VEC] = {}, r_late[ITEMS];
  double shared = 0.;
  for (int step = 0; step < steps; step += ITEMS) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const float factor = dy.r_next[i][0];
      dy.load(i, dy_jump);
      if (step + i < steps) {
        shared += factor;
        if (gdw) {
#pragma unroll
          for (int j = 0; j < VEC; ++j) r_v[j] += factor * x.r_next[i][j];
        }
      }
      x.load(i, x_jump);
      if (step) write_dx(r_late[i]);
      r_late[i] = factor;
    }
  }
  at.total(r_v, shared, [&] {
    const int late = (steps - 1) % ITEMS + 1;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (steps && i < late) write_dx(r_late[i]);
    }
  });
  if (gdw && at.live) {
    WeightChunk chunk;
    chunk.pack(r_v);
    for (Index row = at.first; row < outputs; row += STEP) chunk.store_streaming(gdw + row * width + at.column);
  }
  if (gdb && at.leading && at.lane == 0) {
    for (Index row = at.first; row < outputs; row += STEP) gdb[row] = narrow<Bias>(float(shared));
  }
}
