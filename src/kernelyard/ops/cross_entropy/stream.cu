// The loss alone, of rows too long for registers: read once and forgotten, so any length will do. A row is one CTA's, or
// shared out over `chunks` CTAs that meet through device memory, where rows are few.

#include "loss.cuh"

struct Part {
  float2 pair;
  float over, unused;
};

// Takes this thread's vectors of one tile; where it is WHOLE, nothing of it lies outside the row.
template <bool WHOLE>
__device__ void take_tile(const Scalar* gx, const Span& span, float pivot, float2& part, float& over) {
  Chunk r_x[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (WHOLE || span.touches(i)) r_x[i].load(gx + span.first(i));
  }
  float values[ITEMS * VEC];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    float(&own)[VEC] = *reinterpret_cast<float(*)[VEC]>(values + i * VEC);
    if (!WHOLE) {
      span.read(i, r_x[i], -INF, own);
      if (SMOOTH) add_over(over, span, i, own, pivot);
      continue;
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      own[j] = r_x[i][j];
      if (SMOOTH) over += own[j] - pivot;
    }
  }
  take(part, values);
}

extern "C" __global__ void __launch_bounds__(THREADS)
stream_forward(const Scalar* gx, const Target* gtarget, Loss* gloss, float2* gkept, Part* gparts, Index rows,
               Index length, Index pitch, Index run, Index jump, Index ignored, Index smoothing, Index z, Index chunks,
               Index tiles) {
  const Place at;
  const Options how(smoothing, z);
  const Index row = blockIdx.x / unsigned(chunks), chunk = blockIdx.x % unsigned(chunks);
  const Aim aim(gtarget, row, rows, length, ignored);
  gx += start_of(row, rows, pitch, run, jump);
  const float logit = SMOOTH || at.thread == 0 ? aim.logit(gx) : 0.f;
  float2 part = {-INF, 0.f};
  float over = 0.f;
  start_next();
#pragma unroll 1
  for (Index tile = chunk * tiles; tile < (chunk + 1) * tiles; ++tile) {
    const Span span(gx, tile * ITEMS * THREADS + at.thread, THREADS, aim.counts ? length : 0);
    const Offset begin = span.first(0) - at.thread * VEC;
    if (begin >= 0 && begin + ITEMS * THREADS * VEC <= span.n) {
      take_tile<true>(gx, span, pivot_of(logit), part, over);
    } else {
      take_tile<false>(gx, span, pivot_of(logit), part, over);
    }
  }
  part = over_row(at, part);
  if (SMOOTH) over = at.total(over);
  if (at.thread != 0) return;
  if (chunks > 1) {
    gparts[blockIdx.x] = {part, over, 0.f};
  } else {
    gloss[row] = narrow<Loss>(loss_of(aim, part, logit, over, length, how));
    if (gkept) gkept[row] = part;
  }
}

// One warp to a row, which was read in chunks.
extern "C" __global__ void __launch_bounds__(THREADS)
stream_join(const Scalar* gx, const Target* gtarget, Loss* gloss, float2* gkept, const Part* gparts, Index rows,
            Index length, Index pitch, Index run, Index jump, Index ignored, Index smoothing, Index z, Index chunks,
            Index) {
  wait_for_previous();
  const Options how(smoothing, z);
  const int lane = threadIdx.x % WARP;
  const Index row = Index(blockIdx.x) * (THREADS / WARP) + threadIdx.x / WARP;
  if (row >= rows) return;
  const Aim aim(gtarget, row, rows, length, ignored);
  float2 part = {-INF, 0.f};
  float over = 0.f;
  for (Index p = lane; p < chunks; p += WARP) {
    const Part& other = gparts[row * chunks + p];
    part = combine(part, other.pair);
    over += other.over;
  }
  part = combine_over<WARP>(part);
  over = sum_over<WARP>(over);
  if (lane != 0) return;
  const float logit = aim.logit(gx + start_of(row, rows, pitch, run, jump));
  gloss[row] = narrow<Loss>(loss_of(aim, part, logit, over, length, how));
  if (gkept) gkept[row] = part;
}
