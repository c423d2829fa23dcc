// Elements as they lie in memory (float, half, bfloat) and as kernels compute with them (float), without CUDA's own
// headers: cuda_bf16.h alone costs half a second of compile time.
#pragma once

struct Half { unsigned short bits; };
struct Bfloat { unsigned short bits; };

// Raw bytes of one vector, moved by one instruction.
template <int BYTES> struct Raw;
template <> struct Raw<16> { uint4 word; };
template <> struct Raw<8> { uint2 word; };
template <> struct Raw<4> { unsigned word; };
template <> struct Raw<2> { unsigned short word; };

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(Bfloat value) { return __uint_as_float(unsigned(value.bits) << 16); }
__device__ inline float widen(Half value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}

template <typename T> __device__ T narrow(float value);
template <> __device__ inline float narrow<float>(float value) { return value; }
template <> __device__ inline Half narrow<Half>(float value) {
  Half half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  return half;
}
template <> __device__ inline Bfloat narrow<Bfloat>(float value) {
  Bfloat result;
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
  // Round to nearest even by hand; NaN keeps its sign and turns quiet.
  const unsigned bits = __float_as_uint(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  result.bits = nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
#endif
  return result;
}

// Two neighbouring 16-bit elements in one word, the first in the low half.
template <typename T> __device__ unsigned narrow_pair(float first, float second) {
  return unsigned(narrow<T>(first).bits) | unsigned(narrow<T>(second).bits) << 16;
}
#if __CUDA_ARCH__ >= 800
template <> __device__ inline unsigned narrow_pair<Half>(float first, float second) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
template <> __device__ inline unsigned narrow_pair<Bfloat>(float first, float second) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
#endif

// COUNT elements of type T: 16 bytes where the layout allows, one element where it allows nothing wider.
template <typename T, int COUNT> struct Vector {
  static constexpr int BYTES = COUNT * sizeof(T);
  Raw<BYTES> raw;

  // Whole rows: streaming hints (ld.cs, st.cs) would cost 1 % of the bandwidth.
  __device__ void load(const T* from) { raw.word = *reinterpret_cast<const decltype(raw.word)*>(from); }
  __device__ void store(T* to) const { *reinterpret_cast<decltype(raw.word)*>(to) = raw.word; }

  // Pieces of a line at a time, for kernels that walk across rows: there the hints are worth a third of the bandwidth.
  __device__ void load_streaming(const T* from) {
    raw.word = __ldcs(reinterpret_cast<const decltype(raw.word)*>(from));
  }
  __device__ void store_streaming(T* to) const { __stcs(reinterpret_cast<decltype(raw.word)*>(to), raw.word); }

#if __CUDA_ARCH__ >= 800
  // Into this place of shared memory, 16 bytes at a time; this thread may read it after wait_copies.
  __device__ void copy_async(const T* from) {
    static_assert(BYTES == 16, "cp.async.cg copies 16 bytes");
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&raw));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  }
  __device__ void copy_async(const T* from, unsigned long long policy) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&raw));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy)
                 : "memory");
  }
  static __device__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Waits until at most LATER groups, the last committed, are still on their way.
  template <int LATER> static __device__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
  }
#endif

  // One element as it lies in memory; a vector of several is put together so.
  __device__ void put(int i, T element) {
    unsigned* words = reinterpret_cast<unsigned*>(&raw);
    if constexpr (sizeof(T) == 4) {
      words[i] = __float_as_uint(element);
    } else if constexpr (COUNT == 1) {
      raw.word = element.bits;
    } else {
      const unsigned word = words[i / 2];
      words[i / 2] = i % 2 ? (word & 0xffffu) | unsigned(element.bits) << 16 : (word & 0xffff0000u) | element.bits;
    }
  }

  __device__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) {
      return __uint_as_float(reinterpret_cast<const unsigned*>(&raw)[i]);
    } else if constexpr (COUNT == 1) {
      return widen(T{raw.word});
    } else {
      const unsigned pair = reinterpret_cast<const unsigned*>(&raw)[i / 2];
      return widen(T{static_cast<unsigned short>(i % 2 ? pair >> 16 : pair)});
    }
  }

  __device__ void pack(const float (&values)[COUNT]) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) reinterpret_cast<unsigned*>(&raw)[i] = __float_as_uint(values[i]);
    } else if constexpr (COUNT == 1) {
      raw.word = narrow<T>(values[0]).bits;
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i += 2) {
        reinterpret_cast<unsigned*>(&raw)[i / 2] = narrow_pair<T>(values[i], values[i + 1]);
      }
    }
  }
};

// COUNT neighbouring elements as floats and back, in pieces of at most 16 bytes: of tensors that share a kernel's vectors
// but not its dtype.
template <typename T, int COUNT> constexpr int PIECE = COUNT * sizeof(T) > 16 ? 16 / sizeof(T) : COUNT;

template <typename T, int COUNT> __device__ void read_elements(const T* from, float (&values)[COUNT]) {
  constexpr int WIDE = PIECE<T, COUNT>;
#pragma unroll
  for (int first = 0; first < COUNT; first += WIDE) {
    Vector<T, WIDE> piece;
    piece.load(from + first);
#pragma unroll
    for (int j = 0; j < WIDE; ++j) values[first + j] = piece[j];
  }
}

template <typename T, int COUNT, bool STREAMING = false> __device__ void write_elements(T* to, const float (&values)[COUNT]) {
  constexpr int WIDE = PIECE<T, COUNT>;
#pragma unroll
  for (int first = 0; first < COUNT; first += WIDE) {
    float some[WIDE];
#pragma unroll
    for (int j = 0; j < WIDE; ++j) some[j] = values[first + j];
    Vector<T, WIDE> piece;
    piece.pack(some);
    STREAMING ? piece.store_streaming(to + first) : piece.store(to + first);
  }
}
