// Column sums that the next kernel learns one by one, while the kernel that makes them still runs: a word a column, 0
// until the sum is there, and last that of what all columns share. On a line of its own before them is the count of CTAs
// that have asked for all but a few of their rows. All of it is zero when the first of both kernels starts.
#pragma once

#include "reduce.cuh"

constexpr int COUNT_WORDS = 32;

// A sum's bits, inverted: 0 would be a NaN, of which another one stands there.
__device__ inline void tell(unsigned* g_told, Index place, float sum) {
  const unsigned word = ~__float_as_uint(sum);
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(g_told + COUNT_WORDS + place), "r"(word ? word : 0x80000000u)
               : "memory");
}

__device__ inline unsigned seen(const unsigned* g_word) {
  unsigned word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(g_word) : "memory");
  return word;
}

// The sum at a place, as soon as it is there.
__device__ inline float learn(const unsigned* g_told, Index place) {
  unsigned word;
  do word = seen(g_told + COUNT_WORDS + place);
  while (!word);
  return __uint_as_float(~word);
}

// Four at once, from a multiple of four on.
__device__ inline float4 learn_four(const unsigned* g_told, Index place) {
  uint4 words;
  do {
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(g_told + COUNT_WORDS + place)
                 : "memory");
  } while (!words.x || !words.y || !words.z || !words.w);
  return {__uint_as_float(~words.x), __uint_as_float(~words.y), __uint_as_float(~words.z), __uint_as_float(~words.w)};
}

__device__ inline void count_one(unsigned* g_told) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(g_told) : "memory");
}

__device__ inline void await_count(const unsigned* g_told, unsigned count) {
  while (seen(g_told) < count) {}
}
