// Cross entropy with its gradient, for an upstream gradient of 1, of rows held in registers.
// Each logit is read once and its exponential taken once.

#include "loss.cuh"
#include "row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS * ROWS)
rows_forward(const Scalar* gx, const Target* gtarget, Loss* gloss, float2* gkept, Scalar* gdx, Index rows,
             Index length, Index pitch, Index run, Index jump, Index ignored, Index smoothing, Index z) {
  const Place at;
  const Options how(smoothing, z);
  const Index row = Index(blockIdx.x) * ROWS + threadIdx.x / THREADS;
  const Aim aim(gtarget, row, rows, length, ignored);
  gx += start_of(row, rows, pitch, run, jump);
  const Span span(gx, at.thread, THREADS, aim.counts ? length : 0);

  Chunk r_x[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) span.load(i, r_x[i], gx + span.first(i));
  }
  let_next_kernel_start();
  const float scale = scale_of(gkept, rows);
  const float logit = SMOOTH || at.thread == 0 ? aim.logit(gx) : 0.f;
  float r_e[ITEMS][VEC];
  float2 part = {-INF, 0.f};
  float over = 0.f;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    span.read(i, r_x[i], -INF, r_e[i]);
#pragma unroll
    for (int j = 0; j < VEC; ++j) part.x = fmaxf(part.x, r_e[i][j]);
    if (SMOOTH) add_over(over, span, i, r_e[i], pivot_of(logit));
  }
  // Exponentials are taken once, against the thread's own maximum, and scaled to the row's when that is known.
  const float mine = part.x, own = finite(mine);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) part.y += r_e[i][j] = exp_below(r_e[i][j], own);
  }
  part = over_row(at, part);
  if (SMOOTH) over = at.total(over);
  if (at.thread == 0 && row < rows) {
    gloss[row] = narrow<Loss>(loss_of(aim, part, logit, over, length, how));
    gkept[row] = part;
  }
  if (row >= rows) return;
  Gradient gradient(aim, part, scale, length, how);
  gradient.factor *= exp_below(mine, finite(part.x));
  gdx += row * length;
  const Span whole(gdx, at.thread, THREADS, length);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    gradient.apply(r_e[i], aim.target, whole.first(i));
    whole.write(i, gdx, r_e[i]);
  }
}
