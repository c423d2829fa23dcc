// Classes that lie apart, as those of an image's (N, C, H, W) do: BX x BY threads work along the classes of neighbouring
// pixels, BX vectors of them side by side. A row is here what it is elsewhere, the logits of one pixel.
//
// Classes that fit the registers of a CTA are read once, for the loss and its gradient (columns_forward). More are cut
// into chunks of `tiles` steps each, which meet through device memory between two kernels (columns_part, columns_join).

#include "columns.cuh"
#include "loss.cuh"

struct Parts {
  static __device__ Part nothing() { return {Softmax::nothing(), 0.f, 0.f}; }
  static __device__ Part add(Part a, Part b) { return {combine(a.pair, b.pair), SMOOTH ? a.over + b.over : 0.f, 0.f}; }
  template <int LANES, int STRIDE> static __device__ Part over(Part part) {
    return {Softmax::over<LANES, STRIDE>(part.pair), SMOOTH ? sum_over<LANES, STRIDE>(part.over) : 0.f, 0.f};
  }
};

// The rows of a thread's VEC columns, and what they are held against.
struct Labels {
  const Columns& at;
  const Scalar* gx;
  Index rows, begin;
  Aim aims[VEC];

  __device__ Labels(const Columns& at, const Scalar* gx, const Target* gtarget, Index rows, Index ignored)
      : at(at), gx(gx), rows(rows), begin(at.live ? at.outer * at.inner + at.column : rows) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) aims[j] = Aim(gtarget, begin + j, rows, at.length, ignored);
  }
  __device__ float logit(int j) const {
    const Aim& aim = aims[j];
    if (!aim.counts || !aim.known) return 0.f;
    return widen(gx[(at.outer * at.length + aim.target) * at.inner + at.column + j]);
  }
};

__device__ inline void fill(const Labels& labels, Part (&parts)[VEC], float (&pivots)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    parts[j] = Parts::nothing();
    pivots[j] = SMOOTH ? pivot_of(labels.logit(j)) : 0.f;
  }
}

__device__ inline void load_step(const Columns& at, const Scalar* gx, Index first, Chunk (&r_x)[ITEMS]) {
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (at.holds(first, i)) r_x[i].load_streaming(gx + at.at(first, i));
  }
}

__device__ inline void take_step(const Columns& at, Index first, const Chunk (&r_x)[ITEMS], const float (&pivots)[VEC],
                                 Part (&parts)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    float values[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      values[i] = at.holds(first, i) ? r_x[i][j] : -INF;
      if (SMOOTH && at.holds(first, i)) parts[j].over += values[i] - pivots[j];
    }
    take(parts[j].pair, values);
  }
}

// Of the columns' whole parts: every row's loss, or what this CTA's rows add up to.
__device__ inline void write_losses(const Labels& labels, const Part (&parts)[VEC], Loss* gloss, float2* gkept,
                                    const Options& how) {
  float2 sum = {0.f, 0.f};
  if (labels.at.ty == 0 && labels.at.live) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float loss =
          loss_of(labels.aims[j], parts[j].pair, labels.logit(j), parts[j].over, labels.at.length, how);
      if (gkept) gkept[labels.begin + j] = parts[j].pair;
      if (!REDUCED) gloss[labels.begin + j] = narrow<Loss>(loss);
      sum.x += loss;
      sum.y += !is_ignored(loss);
    }
  }
  if (!REDUCED || threadIdx.x >= WARP) return;
  // The first warp holds all of ty == 0, and others' sums are zero.
  sum = {sum_over<BX>(sum.x), sum_over<BX>(sum.y)};
  if (threadIdx.x == 0) reinterpret_cast<float2*>(gloss)[blockIdx.x] = sum;
}

// What the gradients of a thread's columns are made of.
struct Gradients {
  float maxima[VEC];
  Gradient made[VEC];

  __device__ void set(int j, const Labels& labels, float2 pair, float scale, const Options& how) {
    maxima[j] = finite(pair.x);
    made[j] = Gradient(labels.aims[j], pair, scale, labels.at.length, how);
  }
  __device__ void write(const Labels& labels, Index first, const Chunk (&r_x)[ITEMS], Scalar* gdx) const {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (!labels.at.holds(first, i)) continue;
      float values[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        values[j] = exp_below(r_x[i][j], maxima[j]) * made[j].factor - made[j].share;
        if (labels.at.row(first, i) == labels.aims[j].target) values[j] -= made[j].hit;
        // Whatever an ignored row holds.
        if (!labels.aims[j].counts) values[j] = 0.f;
      }
      Chunk chunk;
      chunk.pack(values);
      chunk.store_streaming(gdx + labels.at.at(first, i));
    }
  }
};

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_forward(const Scalar* gx, const Target* gtarget, Loss* gloss, float2* gkept, Scalar* gdx, Index rows,
                Index length, Index inner, Index ignored, Index smoothing, Index z) {
  const Options how(smoothing, z);
  const Columns at(length, inner);
  Chunk r_x[ITEMS];
  load_step(at, gx, 0, r_x);
  let_next_kernel_start();
  const float scale = scale_of(gkept, rows);
  const Labels labels(at, gx, gtarget, rows, ignored);
  Part parts[VEC];
  float pivots[VEC];
  fill(labels, parts, pivots);
  take_step(at, 0, r_x, pivots, parts);
  at.meet<Parts>(parts);
  write_losses(labels, parts, gloss, gkept, how);
  if (!gdx) return;
  Gradients gradients;
#pragma unroll
  for (int j = 0; j < VEC; ++j) gradients.set(j, labels, parts[j].pair, scale, how);
  gradients.write(labels, 0, r_x, gdx);
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_part(const Scalar* gx, const Target* gtarget, Part* gparts, Index rows, Index length, Index inner,
             Index ignored, Index tiles) {
  const Columns at(length, inner);
  const Labels labels(at, gx, gtarget, rows, ignored);
  Part parts[VEC];
  float pivots[VEC];
  fill(labels, parts, pivots);
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
    load_step(at, gx, first, r_x);
    take_step(at, first, r_x, pivots, parts);
  }
  at.meet<Parts>(parts);
  at.leave(gparts, parts);
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_join(const Scalar* gx, const Target* gtarget, Loss* gloss, float2* gkept, Scalar* gdx, const Part* gparts,
             Index rows, Index length, Index inner, Index ignored, Index smoothing, Index z, Index tiles) {
  let_next_kernel_start();
  if (!gdx && blockIdx.y) return;  // the first chunk's CTAs write the losses
  const Options how(smoothing, z);
  const Columns at(length, inner);
  const Labels labels(at, gx, gtarget, rows, ignored);
  Part parts[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) parts[j] = Parts::nothing();
  at.gather<Parts>(gparts, parts);
  at.meet<Parts>(parts);
  if (!blockIdx.y) write_losses(labels, parts, gloss, gkept, how);
  if (!gdx) return;
  const float scale = SCALED ? gkept[rows].x : 1.f;
  Gradients gradients;
#pragma unroll
  for (int j = 0; j < VEC; ++j) gradients.set(j, labels, parts[j].pair, scale, how);
  for (Index tile = tiles - 1; tile >= 0; --tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
    load_step(at, gx, first, r_x);
    gradients.write(labels, first, r_x, gdx);
  }
}

// As gradient_backward of gradient.cu: for any upstream gradient, 1 without gdy, from what the forward pass kept.
extern "C" __global__ void __launch_bounds__(BX * BY)
columns_backward(const Scalar* gdy, const Scalar* gx, const Target* gtarget, const float2* gkept, Scalar* gdx,
                 Index rows, Index length, Index inner, Index ignored, Index smoothing, Index z, Index tiles,
                 Index made) {
  if (made) await_previous_kernel();
  const float dy = EACH || !gdy ? 1.f : widen(*gdy);
  if (made && dy == 1.f) return;
  const Options how(smoothing, z);
  const Columns at(length, inner);
  const Labels labels(at, gx, gtarget, rows, ignored);
  const float scale = EACH ? 1.f : dy * reinterpret_cast<const float*>(gkept)[2 * rows];
  Gradients gradients;
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    const Index row = labels.begin + j;
    const float2 pair = row < rows ? gkept[row] : float2{0.f, 1.f};
    gradients.set(j, labels, pair, EACH && gdy && row < rows ? widen(gdy[row]) : scale, how);
  }
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
    load_step(at, gx, first, r_x);
    gradients.write(labels, first, r_x, gdx);
  }
}
