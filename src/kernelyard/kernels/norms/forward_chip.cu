// Norms of rows that no cluster holds, each spread over the shared memory of the whole chip and read once.

#include "forward_lines.cuh"
#include "chip.cuh"

// Every row is multiplied with the same weights, and a CTA has the same columns of every row. They stay in registers as
// far as those reach: read from L2 for each row of 4 million, layer norm has 67 % in bf16 and 50 in fp32, kept 88 and 71.
constexpr bool ALIKE = HAS_WEIGHT && VECTORS && !SHIFTED && VEC * sizeof(Weight) == 16;
constexpr int PLANE = TILES * ITEMS, ROOM = 8192 / THREADS;
#if __CUDA_ARCH__ >= 900
constexpr bool KEPT_WEIGHT = ALIKE && PLANE <= ROOM, KEPT_BIAS = ALIKE && HAS_BIAS && 2 * PLANE <= ROOM;
#else
constexpr bool KEPT_WEIGHT = false, KEPT_BIAS = false;
#endif
// Tiles of b that are kept: beside the weights of the longest rows there is room for two, and a share of two more is
// spilled to L1, which is nearer than L2. Layer norm over 16 rows of 4 million in fp32, H100: 225.7 us with one tile,
// 223.3 with two, 222.2 with four; 224.8 with five, 231.8 with six.
constexpr int KEPT_BIASES = KEPT_BIAS ? TILES : KEPT_WEIGHT && HAS_BIAS && THREADS == 256 && TAIL == 0 ? 4 : 0;
// Whether L2 should rather keep parameters than x.
constexpr bool FROM_L2 = ALIKE && (!KEPT_WEIGHT || (HAS_BIAS && !KEPT_BIAS));

struct Forward {
  using How = Spread;
  using Part = Moments;

  // A thread's vectors of a tile.
  struct Held {
    Chunk x[ITEMS];

    __device__ __forceinline__ void hold(const Chunk* s_x) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) x[i] = s_x[i * THREADS];
    }
  };

  // w and b of a tile, where they are ALIKE.
  struct Parameters {
    static constexpr bool KEPT = KEPT_WEIGHT;
    using Some = Vector<Weight, ALIKE ? VEC : 1>;
    Some w[ITEMS], b[ITEMS];

    template <bool W, bool B> __device__ __forceinline__ void read(const Forward& work, const Span& span) {
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        if (W && span.touches(i)) w[i] = load(work.affine.gw + span.first(i));
        if (B && span.touches(i)) b[i] = load(work.affine.gb + span.first(i));
      }
    }
    static __device__ __forceinline__ Some load(const Weight* from) {
      Some some;
      if constexpr (ALIKE) {
        uint4& word = reinterpret_cast<uint4&>(some);
        asm volatile("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                     : "l"(from), "l"(policy_always()));
      }
      return some;
    }
    // Without this the compiler widens all that is kept ahead of the walk, which takes twice the registers.
    static __device__ __forceinline__ void stay_narrow(Some& some) {
      if constexpr (ALIKE) {
        uint4& word = reinterpret_cast<uint4&>(some);
        asm volatile("" : "+r"(word.x), "+r"(word.y), "+r"(word.z), "+r"(word.w));
      }
    }
    template <int AT> static constexpr bool BIAS = AT < KEPT_BIASES;
    template <int AT> __device__ __forceinline__ void keep(const Forward& work, const Span& span) {
      read<KEPT_WEIGHT, BIAS<AT>>(work, span);
    }
    template <int AT> __device__ __forceinline__ void fetch(const Forward& work, const Span& span) {
      read<ALIKE && !KEPT_WEIGHT, ALIKE && HAS_BIAS && !BIAS<AT>>(work, span);
#pragma unroll
      for (int i = 0; i < ITEMS; ++i) {
        if (KEPT_WEIGHT) stay_narrow(w[i]);
        if (BIAS<AT>) stay_narrow(b[i]);
      }
    }
  };

  const Scalar *gx, *gr;
  Affine affine;
  Out* gy;
  Scalar* gt;
  float *g_mean, *g_rstd, eps;
  Index length, pitch;
  Stats stats;

  __device__ const Scalar* from(Index row) const { return gx + row * pitch; }
  __device__ void ask(const Span& span, Index row, Chunk* s_x) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (!span.touches(i)) continue;
      if (FROM_L2) {
        span.copy_async(i, s_x[i * THREADS], from(row) + span.first(i), policy_once());
      } else {
        span.copy_async(i, s_x[i * THREADS], from(row) + span.first(i));
      }
      if (ADD) span.copy_async(i, s_x[TILE + i * THREADS], gr + row * pitch + span.first(i));
    }
  }
  __device__ void take(const Span& span, Index row, Chunk* s_x, Moments& part) const {
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      r_x[i] = s_x[i * THREADS];
      if (ADD) {
        add_to(r_x[i], s_x[TILE + i * THREADS]);
        s_x[i * THREADS] = r_x[i];
        span.write(i, gt + row * length, r_x[i]);
      }
    }
    if (!CENTRED) {
      part = Spread::add(part, moments_of<0, ITEMS>(span, [&](int i) -> const Chunk& { return r_x[i]; }));
      return;
    }
    // Until a thread has taken its whole share: how many elements, the sums of their distances from the first of them and
    // of the squares of those, and that first one. About one of its own, squares are at most count times what they are
    // about the mean, so that little is lost when that is taken off; and there is no mean to be known before.
    if (part.count == 0.f) part.unused = first_of(span, r_x);
    float values[VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (!span.touches(i)) continue;
      span.read(i, r_x[i], part.unused, values);
      part.count += float(span.count(i));
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const float apart = values[j] - part.unused;
        part.mean += apart;
        part.squares += apart * apart;
      }
    }
  }
  static __device__ float first_of(const Span& span, const Chunk (&r_x)[ITEMS]) {
    float first = 0.f;
#pragma unroll
    for (int i = ITEMS - 1; i >= 0; --i) {
      if (!span.touches(i)) continue;
      if (span.covers(i)) {
        first = r_x[i][0];
      } else {
#pragma unroll
        for (int j = VEC - 1; j >= 0; --j) {
          if (span.holds(i, j)) first = r_x[i][j];
        }
      }
    }
    return first;
  }
  static __device__ Moments whole(Moments part) {
    if (!CENTRED || part.count == 0.f) return part;
    const float apart = part.mean / part.count;
    return {part.count, part.unused + apart, fmaxf(part.squares - part.mean * apart, 0.f), 0.f};
  }
  __device__ void know(Index row, Moments total) {
    stats = Stats(total, length, eps);
    if (blockIdx.x == 0 && threadIdx.x == 0) stats.leave(g_mean, g_rstd, row);
  }
  __device__ __forceinline__ void write(const Span& span, Index row, const Held& held, const Parameters& beside) const {
    Out* to = gy + row * length;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if constexpr (ALIKE) {
        if (!span.touches(i)) continue;
        float values[VEC];
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
          values[j] = affine.apply(stats.hat(held.x[i][j]), beside.w[i][j], HAS_BIAS ? beside.b[i][j] : 0.f);
        }
        write_elements<Out, VEC, true>(to + span.first(i), values);
      } else {
        write_normalised(affine, stats, span, i, held.x[i], to);
      }
    }
  }
};

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
chip_forward(const Scalar* gx, const Scalar* gr, const Weight* gw, const Weight* gb, Out* gy, Scalar* gt,
             float* g_mean, float* g_rstd, Word* g_parts, Index rows, Index length, Index pitch, Index eps,
             Index offset, Index share) {
  const Affine affine{gw, gb, as_float(offset)};
  Forward work{gx, gr, affine, gy, gt, g_mean, g_rstd, as_float(eps), length, pitch, Stats()};
  over_chip(work, g_parts, rows, length, share);
}
