// Classes that lie apart, as those of an image's (N, C, H, W) do: BX x BY threads work along the classes of neighbouring
// pixels, BX vectors of them side by side. A row is here what it is elsewhere, the logits of one pixel.
//
// Classes that fit the registers of a CTA are read once, for the loss and its gradient (columns_forward). More are cut
// into chunks of `tiles` steps each, which meet through device memory between two kernels (columns_part, columns_join).

#include "columns.cuh"
#include "loss.cuh"

// Of sums and gradients nothing below 2^-126 is missed. Without the flush every exponential is three instructions more,
// and 16 bits wait for instructions.
__device__ inline float exp_flushed(float value, float max) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"((value - max) * LOG2_E));
  return result;
}

// `logit` is the target's, where it is among the classes that were looked at.
struct Parts {
  static __device__ Part nothing() { return {Softmax::nothing(), 0.f, 0.f}; }
  static __device__ Part add(Part a, Part b) {
    return {combine(a.pair, b.pair), SMOOTH ? a.over + b.over : 0.f, a.logit + b.logit};
  }
  template <int LANES, int STRIDE> static __device__ Part over(Part part) {
    return {Softmax::over<LANES, STRIDE>(part.pair), SMOOTH ? sum_over<LANES, STRIDE>(part.over) : 0.f,
            sum_over<LANES, STRIDE>(part.logit)};
  }
};

// Targets of the CTA's columns that are no class: of rows that count for nothing, and of those that are wrong.
constexpr int UNCOUNTED = -2, UNKNOWN = -1;

// What a thread's VEC columns are held against. The CTA reads its targets side by side: a thread its own, 64 bytes from
// the next thread's, would take more of the L1 than 19 classes do.
struct Labels {
  Index begin;
  int targets[VEC];

  __device__ Labels(const Columns& at, const Target* gtarget, Index ignored)
      : begin(at.outer * at.inner + at.column) {
    __shared__ int s_targets[COLS];
    const Index first = at.column - at.tx * VEC;
    for (int column = threadIdx.x; column < COLS; column += BX * BY) {
      if (first + column >= at.inner) break;
      const Index target = gtarget[at.outer * at.inner + first + column];
      s_targets[column] = target == ignored ? UNCOUNTED : target >= 0 && target < at.length ? int(target) : UNKNOWN;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < VEC; ++j) targets[j] = at.live ? s_targets[at.tx * VEC + j] : UNCOUNTED;
  }
  __device__ Aim aim(int j) const {
    Aim aim;
    aim.target = targets[j];
    aim.counts = targets[j] != UNCOUNTED;
    aim.known = targets[j] >= 0;
    return aim;
  }
};

// Deviations are summed up from the target's logit, which all threads of a column read: from another, that may be masked by
// a large number, nothing of the others would be left.
__device__ inline void fill(const Columns& at, const Scalar* gx, const Labels& labels, Part (&parts)[VEC],
                            float (&pivots)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    parts[j] = Parts::nothing();
    pivots[j] = 0.f;
    if (!SMOOTH || labels.targets[j] < 0) continue;
    pivots[j] = pivot_of(widen(gx[(at.outer * at.length + labels.targets[j]) * at.inner + at.column + j]));
  }
}

__device__ inline void load_step(const Columns& at, const Scalar* gx, Index first, Chunk (&r_x)[ITEMS]) {
  // What there is not is minus infinity, of which a sum of exponentials takes no notice.
  float nothing[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) nothing[j] = -INF;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (at.holds(first, i)) r_x[i].load_streaming(gx + at.at(first, i));
    else r_x[i].pack(nothing);
  }
}

// Where a class of this thread is a column's target: the item, or one that there is not.
__device__ inline int hit_of(const Columns& at, Index first, int target) {
  const int distance = target - int(first) - at.ty;
  return distance >= 0 && distance % BY == 0 ? distance / BY : -1;
}

__device__ inline void take_step(const Columns& at, Index first, const Chunk (&r_x)[ITEMS], const Labels& labels,
                                 const float (&pivots)[VEC], Part (&parts)[VEC]) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    const int hit = hit_of(at, first, labels.targets[j]);
    float values[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      values[i] = r_x[i][j];
      if (SMOOTH && at.holds(first, i)) parts[j].over += values[i] - pivots[j];
      if (i == hit) parts[j].logit = values[i];
    }
    float2& pair = parts[j].pair;
    float max = pair.x;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) max = fmaxf(max, values[i]);
    const float own = finite(max);
    pair.y *= exp_flushed(pair.x, own);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) pair.y += exp_flushed(values[i], own);
    pair.x = max;
  }
}

// Of the columns' whole parts: every row's loss, or what this CTA's rows add up to.
__device__ inline void write_losses(const Columns& at, const Labels& labels, const Part (&parts)[VEC], Loss* gloss,
                                    float2* gkept, const Options& how) {
  float2 sum = {0.f, 0.f};
  if (at.ty == 0 && at.live) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const Aim aim = labels.aim(j);
      const float logit = aim.known ? parts[j].logit : 0.f;
      const float loss = loss_of(aim, parts[j].pair, logit, parts[j].over, at.length, how);
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

  __device__ void set(int j, const Aim& aim, float2 pair, float scale, Index length, const Options& how) {
    maxima[j] = finite(pair.x);
    made[j] = Gradient(aim, pair, scale, length, how);
  }
  __device__ void write(const Columns& at, const Labels& labels, Index first, const Chunk (&r_x)[ITEMS],
                        Scalar* gdx) const {
    int hits[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) hits[j] = hit_of(at, first, labels.targets[j]);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (!at.holds(first, i)) continue;
      float values[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        values[j] = exp_flushed(r_x[i][j], maxima[j]) * made[j].factor - made[j].share;
        if (i == hits[j]) values[j] -= made[j].hit;
        // Whatever an ignored row holds.
        if (labels.targets[j] == UNCOUNTED) values[j] = 0.f;
      }
      Chunk chunk;
      chunk.pack(values);
      chunk.store_streaming(gdx + at.at(first, i));
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
  const Labels labels(at, gtarget, ignored);
  let_next_kernel_start();
  const float scale = scale_of(gkept, rows);
  Part parts[VEC];
  float pivots[VEC];
  fill(at, gx, labels, parts, pivots);
  take_step(at, 0, r_x, labels, pivots, parts);
  at.meet<Parts>(parts);
  write_losses(at, labels, parts, gloss, gkept, how);
  if (!gdx) return;
  Gradients gradients;
#pragma unroll
  for (int j = 0; j < VEC; ++j) gradients.set(j, labels.aim(j), parts[j].pair, scale, length, how);
  gradients.write(at, labels, 0, r_x, gdx);
}

extern "C" __global__ void __launch_bounds__(BX * BY)
columns_part(const Scalar* gx, const Target* gtarget, Part* gparts, Index length, Index inner, Index ignored,
             Index tiles) {
  const Columns at(length, inner);
  const Labels labels(at, gtarget, ignored);
  Part parts[VEC];
  float pivots[VEC];
  fill(at, gx, labels, parts, pivots);
  for (Index tile = 0; tile < tiles; ++tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
    load_step(at, gx, first, r_x);
    take_step(at, first, r_x, labels, pivots, parts);
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
  const Labels labels(at, gtarget, ignored);
  Part parts[VEC];
#pragma unroll
  for (int j = 0; j < VEC; ++j) parts[j] = Parts::nothing();
  at.gather<Parts>(gparts, parts);
  at.meet<Parts>(parts);
  if (!blockIdx.y) write_losses(at, labels, parts, gloss, gkept, how);
  if (!gdx) return;
  const float scale = SCALED ? gkept[rows].x : 1.f;
  Gradients gradients;
#pragma unroll
  for (int j = 0; j < VEC; ++j) gradients.set(j, labels.aim(j), parts[j].pair, scale, length, how);
  for (Index tile = tiles - 1; tile >= 0; --tile) {
    const Index first = (blockIdx.y * tiles + tile) * STEP;
    Chunk r_x[ITEMS];
    load_step(at, gx, first, r_x);
    gradients.write(at, labels, first, r_x, gdx);
  }
}

// As gradient_backward of gradient.cu: for any upstream gradient, 1 without gdy, from what the forward pass kept. CTA (x, y)
// works on chunk y of places x, x + gridDim.x, ...
extern "C" __global__ void __launch_bounds__(BX * BY)
columns_backward(const Scalar* gdy, const Scalar* gx, const Target* gtarget, const float2* gkept, Scalar* gdx,
                 Index rows, Index length, Index inner, Index ignored, Index smoothing, Index z, Index tiles,
                 Index places, Index made) {
  if (made) await_previous_kernel();
  const float dy = EACH || !gdy ? 1.f : widen(*gdy);
  if (made && dy == 1.f) return;
  const Options how(smoothing, z);
  const float scale = EACH ? 1.f : dy * reinterpret_cast<const float*>(gkept)[2 * rows];
  for (Index place = blockIdx.x; place < places; place += gridDim.x) {
    const Columns at(length, inner, place);
    const Labels labels(at, gtarget, ignored);
    Gradients gradients;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      const float2 pair = at.live ? gkept[labels.begin + j] : float2{0.f, 1.f};
      const float upstream = EACH && gdy && at.live ? widen(gdy[labels.begin + j]) : scale;
      gradients.set(j, labels.aim(j), pair, upstream, length, how);
    }
    for (Index tile = 0; tile < tiles; ++tile) {
      const Index first = (blockIdx.y * tiles + tile) * STEP;
      Chunk r_x[ITEMS];
      load_step(at, gx, first, r_x);
      gradients.write(at, labels, first, r_x, gdx);
    }
    __syncthreads();  // before the next place's targets take the room of these
  }
}
