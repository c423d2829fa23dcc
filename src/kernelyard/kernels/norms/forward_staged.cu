// Norms of long rows held in the shared memory of a cluster, copied there without passing through registers. Each
// thread reads back what it copied itself. A residual goes through registers, since only the total is held.

#include "forward_lines.cuh"

// At lines of 128 bytes: 16 bytes off them, copies cost 5 % of the bandwidth.
extern __shared__ __align__(128) Chunk s_held[];

// The first half of a thread's vectors is worked on while the second is on its way.
constexpr int HALF = (ITEMS + 1) / 2;

// Vectors on their way ahead of the one at work, as registers allow. RMS norm fp32 at 262144: w 4 ahead 98 %, 2 ahead 92,
// none 85; of four vectors in all 3 ahead, since 4 are two registers too many for three CTAs (fp32, 131072: 100 % for 94).
// Layer norm bf16 at 65536: w 2 and b 1 ahead 98 %, 4 and 4 under 96.
constexpr int RESIDUAL = 2, WEIGHTS = CENTRED ? 2 : ADD || ITEMS > 4 ? 4 : 3, BIASES = 1;
// Whether w and b are asked for before the row arrives, or only before its total is known, when registers are free again:
// a residual's (fp32, 262144: 97 % for 92), those of layer norm's moments (bf16, 65536: 98 for 96).
constexpr bool EARLY = !ADD && (!CENTRED || CLUSTER == 16);

// A thread's elements of another row, DEPTH vectors of them on their way while it works on those before.
template <typename T, int DEEP> struct Ahead {
  static constexpr int WIDE = PIECE<T, VEC>, DEPTH = DEEP < ITEMS ? DEEP : ITEMS;
  const T* from;
  Vector<T, WIDE> r_pieces[DEPTH][VEC / WIDE];

  __device__ Ahead(const T* from) : from(from) {}
  __device__ void load(const Span& span, int i) {
    if (i >= ITEMS || !span.touches(i)) return;
    if constexpr (SHIFTED) {
      span.load(i, r_pieces[i % DEPTH][0], span.at(from, i));  // a residual: other rows are not read ahead then
      return;
    }
#pragma unroll
    for (int piece = 0; piece < VEC / WIDE; ++piece) r_pieces[i % DEPTH][piece].load(span.at(from, i) + piece * WIDE);
  }
  __device__ void start(const Span& span) {
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) load(span, i);
  }
  __device__ void take(const Span& span, int i, float (&values)[VEC]) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) values[j] = r_pieces[i % DEPTH][j / WIDE][j % WIDE];
    load(span, i + DEPTH);
  }
};

// w or b. Read when they are wanted, each vector would wait behind the stores of y before it.
template <int DEEP> struct Parameters : Ahead<Weight, DEEP> {
  static constexpr bool WHOLE = VECTORS && !SHIFTED;
  using Ahead<Weight, DEEP>::Ahead;
  __device__ void start(const Span& span) {
    if constexpr (WHOLE) Ahead<Weight, DEEP>::start(span);
  }
  __device__ void take(const Span& span, int i, float (&values)[VEC]) {
    if constexpr (WHOLE) {
      Ahead<Weight, DEEP>::take(span, i, values);
    } else {
      parameters(this->from, span, i, values);
    }
  }
};

// Four registers fewer leave room for three CTAs of 512 threads: fp32 at 262144 95.4 %, for two 92.7.
extern "C" __global__ void __launch_bounds__(THREADS, FILLED && THREADS == 512 ? 3 : 0)
staged_forward(const Scalar* gx, const Scalar* gr, const Weight* gw, const Weight* gb, Out* gy, Scalar* gt,
               float* g_mean, float* g_rstd, Index rows, Index length, Index pitch, Index eps, Index offset) {
  const Place at;
  const Index row = blockIdx.x / CLUSTER;
  gx += row * pitch;
  gr += row * pitch;
  gy += row * length;
  gt += row * length;
  const Span span(gx, at.rank * THREADS + at.thread, THREADS * CLUSTER, length);
  Chunk* s_x = s_held + at.thread;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) span.copy_async(i, s_x[i * THREADS], span.at(gx, i));
    if (i == HALF - 1) Chunk::commit_copies();
  }
  Chunk::commit_copies();
  Ahead<Scalar, RESIDUAL> residual(gr);
  Parameters<WEIGHTS> weight(gw);
  Parameters<BIASES> bias(gb);
  if (ADD) residual.start(span);
  const auto ask = [&] {
    if (HAS_WEIGHT) weight.start(span);
    if (HAS_BIAS) bias.start(span);
  };
  if (EARLY) ask();

  const auto held = [&](int i) -> Chunk& { return s_x[i * THREADS]; };
  Moments part = Spread::nothing();
  if (ADD) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (i == 0) Chunk::wait_copies<1>();
      if (i == HALF) Chunk::wait_copies<0>();
      float values[VEC];
      residual.take(span, i, values);
      Chunk total = held(i);
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] += total[j];
      total.pack(values);
      held(i) = total;
      span.write(i, gt, total);
      part.squares += squares_about(0.f, span, i, total);
    }
  } else {
    Chunk::wait_copies<1>();
    part = moments_of<0, HALF>(span, held);
    Chunk::wait_copies<0>();
    if (HALF < ITEMS) part = Spread::add(part, moments_of<HALF, ITEMS>(span, held));
  }
  if (!EARLY) ask();
  const Stats stats(over_row(at, part), length, as_float(eps));
  if (at.rank == 0 && at.thread == 0) stats.leave(g_mean, g_rstd, row);
  const Affine affine{gw, gb, as_float(offset)};
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (!span.touches(i)) continue;
    float values[VEC], w[VEC], b[VEC];
    if (HAS_WEIGHT) weight.take(span, i, w);
    if (HAS_BIAS) bias.take(span, i, b);
    const Chunk x = held(i);
#pragma unroll
    for (int j = 0; j < VEC; ++j) values[j] = affine.apply(stats.hat(x[j]), w[j], b[j]);
    span.write(i, gy, values);
  }
}
