// A row among threads: which vectors of it a thread has, and how the threads of a row add up what they found.
//
// A row belongs to THREADS threads in each of CLUSTER CTAs, ROWS rows to a CTA. With SHIFTED, rows start anywhere:
// vectors are the aligned 16 bytes that cover the row, and the elements before and after it are neither read nor written:
// they may lie beyond the tensor. All tensors of a call then lie equally against 16 bytes. OFFSET is the type that
// counts a row's elements. A kernel calls `meet` (or what calls it) at most once: the parts lie in shared memory that is
// not written twice.
#pragma once

#include "cluster.cuh"
#include "pipeline.cuh"
#include "reduce.cuh"

using Offset = OFFSET;
constexpr int LANES = THREADS < WARP ? THREADS : WARP;
constexpr int WARPS = THREADS / LANES;
constexpr int PARTS = WARPS * CLUSTER;

// Whether all vectors of all threads are a row's, so that none is looked at: a third fewer instructions, for which a layer
// norm of 16 bits waits (262144 elements: 97.2 % for 92.7).
#ifndef FILLED
#define FILLED 0
#endif

// Where a thread's vectors of a row of n elements lie: first(i) is the index of vector i's first element.
struct Span {
  Offset start, n;
  int stride;
  bool all;  // whether it is known that all of them are the row's

  __device__ Span(const Scalar* row, Offset position, int width, Offset n, bool all = FILLED)
      : n(n), stride(width * VEC), all(all) {
    start = position * VEC;
    if (SHIFTED) start -= reinterpret_cast<unsigned long long>(row) % sizeof(Chunk) / sizeof(Scalar);
  }
  __device__ Offset first(int i) const { return start + Offset(i) * stride; }
  // Where vector i's first element lies in a row: one address and a constant, where stride is one.
  template <typename T> __device__ T* at(T* row, int i) const { return row + start + Index(i) * stride; }
  __device__ bool touches(int i) const { return all || (SHIFTED ? first(i) > -VEC && first(i) < n : first(i) < n); }
  __device__ bool covers(int i) const { return all || (SHIFTED ? first(i) >= 0 && first(i) + VEC <= n : first(i) < n); }
  __device__ bool holds(int i, int j) const { return first(i) + j >= 0 && first(i) + j < n; }
  // How many of vector i's elements are the row's.
  __device__ int count(int i) const {
    if (covers(i)) return VEC;
    if (!touches(i)) return 0;
    const Offset begin = first(i) < 0 ? 0 : first(i), end = first(i) + VEC < n ? first(i) + VEC : n;
    return int(end - begin);
  }

  // Vector i, which touches the row, from its place in memory: into registers, or into shared memory of this thread's.
  __device__ void load(int i, Chunk& to, const Scalar* from) const {
    if (!SHIFTED || covers(i)) {
      to.load(from);
    } else {
      pick(i, to, from);
    }
  }
  template <typename... Policy>
  __device__ void copy_async(int i, Chunk& s_to, const Scalar* from, Policy... policy) const {
    if (!SHIFTED || covers(i)) {
      s_to.copy_async(from, policy...);
    } else {
      Chunk chunk;
      pick(i, chunk, from);
      s_to = chunk;
    }
  }
  __device__ void pick(int i, Chunk& to, const Scalar* from) const {
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      if (holds(i, j)) to.put(j, from[j]);
    }
  }

  // The elements of a loaded vector; `other` where they are not the row's.
  __device__ void read(int i, const Chunk& chunk, float other, float (&values)[VEC]) const {
    if (covers(i)) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = chunk[j];
    } else {
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = SHIFTED && holds(i, j) ? chunk[j] : other;
    }
  }
  template <typename T> __device__ void write(int i, T* row, const float (&values)[VEC]) const {
    if (covers(i)) {
      write_elements(at(row, i), values);
    } else if (SHIFTED && touches(i)) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        if (holds(i, j)) row[first(i) + j] = narrow<T>(values[j]);
      }
    }
  }
  __device__ void write(int i, Scalar* row, const Chunk& chunk) const {
    if (covers(i)) {
      chunk.store(at(row, i));
    } else if (SHIFTED && touches(i)) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        if (holds(i, j)) row[first(i) + j] = narrow<Scalar>(chunk[j]);
      }
    }
  }
};

struct Place {
  static constexpr int LANES_OF_ROW = LANES;
  static constexpr bool ALONE = PARTS == 1;
  int thread = threadIdx.x % THREADS, lane = thread % LANES, warp = thread / LANES, rank = 0;
  mutable unsigned meetings = 0;

  // The row of this thread; CTAs of a cluster learn here that their peers run.
  __device__ Place() {
#if CLUSTER > 1
    if (threadIdx.x == 0) {
      barrier().start(1);
      publish_barriers();
    }
    cluster_announce();
    rank = cluster_rank();
#endif
  }

#if CLUSTER > 1
  // Counts what the peers send. With a barrier of the whole cluster instead softmax takes 95 % at 262144, so 99.
  static __device__ Barrier& barrier() {
    __shared__ Barrier s_met;
    return s_met;
  }
#endif

  // Every warp of the row gives its part to all warps of the row, in one round trip, and adds up what it was given.
  template <typename Part, typename Combine> __device__ Part meet(Part part, Part nothing, Combine add) const {
    if constexpr (PARTS == 1) return part;
    __shared__ Part s_parts[ROWS][PARTS];
    Part* parts = s_parts[threadIdx.x / THREADS];
#if CLUSTER > 1
    cluster_wait();
    if (threadIdx.x == 0) barrier().arrive_expecting(PARTS * sizeof(Part));
    if (lane < CLUSTER) send_to_peer(parts + rank * WARPS + warp, &barrier(), lane, part);
    barrier().wait(meetings++ % 2);
#else
    if (lane == 0) parts[warp] = part;
    __syncthreads();
#endif
    part = nothing;
#pragma unroll
    for (int p = lane; p < PARTS; p += WARP) part = add(part, parts[p]);
    return part;
  }
  __device__ float total(float value) const {
    const auto add = [](float2 a, float2 b) { return float2{a.x + b.x, 0.f}; };
    const float2 part = meet(float2{sum_over<LANES>(value), 0.f}, float2{0.f, 0.f}, add);
    return PARTS == 1 ? part.x : sum_over<WARP>(part.x);
  }
  // Two sums in one round trip.
  __device__ float2 totals(float2 value) const {
    const auto add = [](float2 a, float2 b) { return float2{a.x + b.x, a.y + b.y}; };
    const float2 part = meet(float2{sum_over<LANES>(value.x), sum_over<LANES>(value.y)}, float2{0.f, 0.f}, add);
    return PARTS == 1 ? part : float2{sum_over<WARP>(part.x), sum_over<WARP>(part.y)};
  }
};
