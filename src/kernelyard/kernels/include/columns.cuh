// Columns: a dim that is not the last, worked along by BX x BY threads, BX vectors side by side and ITEMS rows a thread.
#pragma once

#include "reduce.cuh"

constexpr int COLS = BX * VEC;
constexpr int WARPS = BX * BY / WARP;
constexpr int STEP = BY * ITEMS;

// This thread's VEC columns and every BY-th row of them, ITEMS at a time.
struct Columns {
  int tx = threadIdx.x % BX, ty = threadIdx.x / BX;
  Index column, outer, length, inner;
  bool live;

  __device__ Columns(Index length, Index inner, Index place = blockIdx.x) : length(length), inner(inner) {
    const Index tiles = (inner + COLS - 1) / COLS;
    column = place % tiles * COLS + tx * VEC;
    outer = place / tiles;
    live = column < inner;
  }
  __device__ Index row(Index first, int i) const { return first + i * BY + ty; }
  __device__ bool holds(Index first, int i) const { return live && row(first, i) < length; }
  __device__ Index at(Index first, int i) const { return (outer * length + row(first, i)) * inner + column; }

  // Where the part of a chunk lies for this thread's column j.
  __device__ Index part(Index chunk, int j) const { return (outer * gridDim.y + chunk) * inner + column + j; }

  // Adds up the parts of the BY threads of each column and gives every thread its own columns' totals: within a warp,
  // then over the warps, neighbouring lanes to a column.
  template <typename How, typename Part> __device__ void meet(Part (&parts)[VEC]) const {
    if constexpr (BY == 1) return;
    constexpr int SHARE = BX * BY < COLS ? 1 : BX * BY / COLS, LANES = SHARE < WARP ? SHARE : WARP;
    __shared__ Part s_parts[WARPS][COLS + 1];
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      parts[j] = How::template over<WARP / BX, BX>(parts[j]);
      if (threadIdx.x % WARP < BX) s_parts[threadIdx.x / WARP][tx * VEC + j] = parts[j];
    }
    __syncthreads();
    const int lane = threadIdx.x % LANES;
    for (int group = 0; group < COLS; group += BX * BY / LANES) {
      const int column = group + threadIdx.x / LANES;
      Part total = How::nothing();
      for (int warp = lane; column < COLS && warp < WARPS; warp += LANES) total = How::add(total, s_parts[warp][column]);
      total = How::template over<LANES, 1>(total);
      __syncwarp();
      if (column < COLS && lane == 0) s_parts[0][column] = total;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VEC; ++j) parts[j] = s_parts[0][tx * VEC + j];
  }

  // What the chunks of each column left in device memory, shared out over the BY threads.
  template <typename How, typename Part> __device__ void gather(const Part* g_parts, Part (&parts)[VEC]) const {
    for (Index chunk = ty; live && chunk < gridDim.y; chunk += BY) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) parts[j] = How::add(parts[j], g_parts[part(chunk, j)]);
    }
  }
  template <typename Part> __device__ void leave(Part* g_parts, const Part (&parts)[VEC]) const {
    if (live && ty == 0) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) g_parts[part(blockIdx.y, j)] = parts[j];
    }
  }
};
