// The loss alone, of rows that are read once and forgotten, so any length will do. ROWS rows are one CTA's, which leaves
// their sum; or a row is shared out over `chunks` CTAs that meet through device memory, where rows are few.

#include "loss.cuh"
#include "row.cuh"
#include "vectors.cuh"

// This thread's vectors of one tile; where it is WHOLE, nothing of it lies outside the row.
template <bool WHOLE> __device__ void load_tile(const Scalar* gx, const Span& span, Chunk (&r_x)[ITEMS]) {
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (WHOLE) {
      r_x[i].load(gx + span.first(i));
    } else if (span.touches(i)) {
      span.load(i, r_x[i], gx + span.first(i));
    }
  }
}
template <bool WHOLE>
__device__ void take_tile(Chunk (&r_x)[ITEMS], const Span& span, float pivot, float2& part, float& over) {
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (!SMOOTH && (WHOLE || span.covers(i))) continue;
    float values[VEC];
    span.read(i, r_x[i], -INF, values);
    if (SMOOTH) add_over(over, span, i, values, pivot);
    if (!WHOLE) r_x[i].pack(values);
  }
  take_vectors(part, r_x);
}

extern "C" __global__ void __launch_bounds__(THREADS * ROWS)
stream_forward(const Scalar* gx, const Target* gtarget, Loss* gloss, float2* gkept, Part* gparts, Index rows,
               Index length, Index pitch, Index run, Index jump, Index ignored, Index smoothing, Index z, Index chunks,
               Index tiles) {
  let_next_kernel_start();
  const Place at;
  const Options how(smoothing, z);
  const Index row = Index(LOOP ? blockIdx.x / unsigned(chunks) : blockIdx.x) * ROWS + threadIdx.x / THREADS;
  const Aim aim(gtarget, row, rows, length, ignored);
  gx += start_of(row, rows, pitch, run, jump);
  float2 part = {-INF, 0.f};
  float over = 0.f;
#if LOOP
  const Index chunk = blockIdx.x % unsigned(chunks);
  const float logit = SMOOTH || at.thread == 0 ? aim.logit(gx) : 0.f;
#pragma unroll 1
  for (Index tile = chunk * tiles; tile < (chunk + 1) * tiles; ++tile) {
    const Span span(gx, tile * ITEMS * THREADS + at.thread, THREADS, aim.counts ? length : 0);
    const Offset begin = span.first(0) - at.thread * VEC;
    Chunk r_x[ITEMS];
    if (begin >= 0 && begin + ITEMS * THREADS * VEC <= span.n) {
      load_tile<true>(gx, span, r_x);
      take_tile<true>(r_x, span, pivot_of(logit), part, over);
    } else {
      load_tile<false>(gx, span, r_x);
      take_tile<false>(r_x, span, pivot_of(logit), part, over);
    }
  }
#else
  const Span span(gx, at.thread, THREADS, aim.counts ? length : 0);
  Chunk r_x[ITEMS];
  load_tile<false>(gx, span, r_x);
  // After its row, so that memory sees rows in their order.
  const float logit = SMOOTH || at.thread == 0 ? aim.logit(gx) : 0.f;
  if (!EXACT || aim.counts) take_tile<EXACT>(r_x, span, pivot_of(logit), part, over);
#endif
  part = over_row(at, part);
  if (SMOOTH) over = at.total(over);
  const bool mine = at.thread == 0 && row < rows;
#if LOOP
  if (chunks > 1) {
    if (mine) gparts[row * chunks + chunk] = {part, over, 0.f};
    return;
  }
#endif
  const float loss = mine ? loss_of(aim, part, logit, over, length, how) : IGNORED;
  if (mine && gkept) gkept[row] = part;
  if (!REDUCED) {
    if (mine) gloss[row] = narrow<Loss>(loss);
    return;
  }
  __shared__ float s_losses[ROWS];
  float2 sum = {loss, float(!is_ignored(loss))};
  if (ROWS > 1) {
    if (at.thread == 0) s_losses[threadIdx.x / THREADS] = loss;
    __syncthreads();
    if (threadIdx.x >= WARP) return;
    sum = {0.f, 0.f};
    for (int i = threadIdx.x; i < ROWS; i += WARP) {
      sum.x += s_losses[i];
      sum.y += !is_ignored(s_losses[i]);
    }
    sum = {sum_over<WARP>(sum.x), sum_over<WARP>(sum.y)};
  }
  if (threadIdx.x == 0) reinterpret_cast<float2*>(gloss)[blockIdx.x] = sum;
}
