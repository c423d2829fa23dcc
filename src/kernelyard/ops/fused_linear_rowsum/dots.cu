// y = x . sums, row by row. The first rows of x are on their way before the sums are known.
//
// GROUP lanes to a row, of which each has the same CHUNKS vectors in every row, and the sums of those columns in its
// registers. A thread's rows wait in a ring of its own in shared memory, STAGES deep, and threads meet once in ROWS of
// them. STAGES 0: no ring, and the sums are read again for every row, where vectors have less than 16 bytes or rows
// are too long for registers.

#include "overlap.cuh"
#include "reduce.cuh"

constexpr int GROUPS = THREADS / GROUP;
constexpr int LANES = GROUP < WARP ? GROUP : WARP;
constexpr int PARTS = GROUP / LANES;
constexpr int ACROSS = GROUP * VEC;

// This thread's part of `left` rows, which are `jump` elements apart: the sums are made known, then each `next` is one row.
#if STAGES
extern __shared__ Chunk s_ring[];

struct Dots {
  const int column = threadIdx.x % GROUP * VEC, width;
  const Scalar* from;
  const Index jump;
  int left, slot = 0;
  float r_sums[CHUNKS][VEC] = {};

  __device__ bool live(int i) const { return column + i * ACROSS < width; }
  __device__ Chunk* held(int i) const { return s_ring + (slot * CHUNKS + i) * THREADS + threadIdx.x; }
  __device__ void ask() {
    if (left-- > 0) {
#pragma unroll
      for (int i = 0; i < CHUNKS; ++i) {
        if (live(i)) held(i)->copy_async(from + i * ACROSS);
      }
    }
    Chunk::commit_copies();
    from += jump;
    if (++slot == STAGES) slot = 0;
  }
  __device__ Dots(const Scalar* gx, Index width, Index jump, int left)
      : width(int(width)), from(gx + column), jump(jump), left(left) {
#pragma unroll 1
    for (int i = 0; i < STAGES; ++i) ask();
  }
  __device__ void know(const float* g_sums) {
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      if (live(i)) read_elements(g_sums + column + i * ACROSS, r_sums[i]);
    }
  }
  // Of the next row; what the ring holds where there is none does not matter.
  __device__ float next() {
    Chunk::wait_copies<STAGES - 1>();
    float dot = 0.f;
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
      if (!live(i)) break;
      const Chunk chunk = *held(i);
#pragma unroll
      for (int j = 0; j < VEC; ++j) dot += chunk[j] * r_sums[i][j];
    }
    ask();
    return dot;
  }
};
#else
struct Dots {
  const Index width, jump;
  const Scalar* gx;
  const float* g_sums;
  int left;

  __device__ Dots(const Scalar* gx, Index width, Index jump, int left) : width(width), jump(jump), gx(gx), left(left) {}
  __device__ void know(const float* sums) { g_sums = sums; }
  __device__ float next() {
    float dot = 0.f;
    if (left-- > 0) {
#pragma unroll 8
      for (Index at = threadIdx.x % GROUP * VEC; at < width; at += ACROSS) {
        Chunk chunk;
        float sums[VEC];
        chunk.load(gx + at);
        read_elements(g_sums + at, sums);
#pragma unroll
        for (int j = 0; j < VEC; ++j) dot += chunk[j] * sums[j];
      }
    }
    gx += jump;
    return dot;
  }
};
#endif

// Half of a multiprocessor's registers are column_sums'.
extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS)
row_dots(const Scalar* gx, const float* g_sums, Scalar* gy, Index rows, Index width, Index pitch) {
  __shared__ float s_dots[2][ROWS][THREADS / LANES];
  const Index jump = Index(gridDim.x) * GROUPS;
  const Index first = Index(blockIdx.x) * GROUPS + threadIdx.x / GROUP;
  Dots dots(gx + first * pitch, width, jump * pitch, rows > first ? int((rows - first + jump - 1) / jump) : 0);
  await_previous_kernel();
  const float start = g_sums[width];
  dots.know(g_sums);
  int turn = 0;
  for (Index base = Index(blockIdx.x) * GROUPS; base < rows; base += ROWS * jump, turn ^= 1) {
    float parts[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) parts[r] = dots.next();
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      parts[r] = sum_over<LANES>(parts[r]);
      if (threadIdx.x % LANES == 0) s_dots[turn][r][threadIdx.x / LANES] = parts[r];
    }
    // Nobody writes these parts again before all have passed the next turn's barrier.
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * GROUPS; i += THREADS) {
      const Index row = base + i / GROUPS * jump + i % GROUPS;
      float sum = start;
#pragma unroll
      for (int part = 0; part < PARTS; ++part) sum += s_dots[turn][i / GROUPS][i % GROUPS * PARTS + part];
      if (row < rows) gy[row] = narrow<Scalar>(sum);
    }
  }
}
