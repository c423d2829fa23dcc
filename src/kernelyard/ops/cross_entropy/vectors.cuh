// Online softmax of whole vectors in few instructions: what is compared stays packed, and the argument of an exponential is
// one fused product. Two elements of 16 bits come with each word that is read, and their arithmetic, not the memory, is
// what a loss alone waits for.
#pragma once

#include "online.cuh"

__device__ inline unsigned max_pair(unsigned a, unsigned b, Bfloat) {
  unsigned result;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
__device__ inline unsigned max_pair(unsigned a, unsigned b, Half) {
  unsigned result;
  asm("max.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

// Packed maxima are of sm_80 and newer.
template <typename T, int WIDTH, int COUNT> __device__ float max_of(const Vector<T, WIDTH> (&chunks)[COUNT]) {
  if constexpr (sizeof(T) == 2 && WIDTH > 1 && __CUDA_ARCH__ >= 800) {
    unsigned max = reinterpret_cast<const unsigned*>(&chunks[0].raw)[0];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
#pragma unroll
      for (int w = 0; w < WIDTH / 2; ++w) {
        max = max_pair(max, reinterpret_cast<const unsigned*>(&chunks[i].raw)[w], T{});
      }
    }
    return fmaxf(widen(T{static_cast<unsigned short>(max)}), widen(T{static_cast<unsigned short>(max >> 16)}));
  } else {
    float max = -INF;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) max = fmaxf(max, chunks[i][j]);
    }
    return max;
  }
}

// Sum of exp(x - max): what the rounding of max log2(e) puts on every element alike comes off the sum, so that logits
// around 1000 lose nothing. From 2^24 on that rounding may be more than 1, and its own exponential overflows from 2^31
// on: there the difference comes first.
template <typename T, int WIDTH, int COUNT>
__device__ float sum_below(const Vector<T, WIDTH> (&chunks)[COUNT], float max) {
  const float shift = max * LOG2_E;
  const bool fused = fabsf(shift) < float(1 << 24);
  float sum = 0.f;
  if (fused) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
#pragma unroll
      for (int j = 0; j < WIDTH; ++j) sum += exp2_fast(fmaf(chunks[i][j], LOG2_E, -shift));
    }
    return sum * exp2_fast(-fmaf(max, LOG2_E, -shift));
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sum += exp_below(chunks[i][j], max);
  }
  return sum;
}

// Takes vectors into a running (max, sum of exp(x - max)).
template <typename T, int WIDTH, int COUNT>
__device__ void take_vectors(float2& part, const Vector<T, WIDTH> (&chunks)[COUNT]) {
  const float max = fmaxf(part.x, max_of(chunks)), own = finite(max);
  part.y = part.y * exp_below(part.x, own) + sum_below(chunks, own);
  part.x = max;
}
