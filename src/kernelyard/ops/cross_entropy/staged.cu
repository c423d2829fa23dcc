// Cross entropy with its gradient, of long rows held in the shared memory of a cluster: copied there without passing
// through registers, so that more of them are on their way at once than registers would hold. Each thread reads back
// what it copied itself.

#include "loss.cuh"
#include "row.cuh"

extern __shared__ __align__(128) Chunk s_held[];

// The first half of a thread's vectors is worked on while the second is on its way.
constexpr int HALF = (ITEMS + 1) / 2;

extern "C" __global__ void __launch_bounds__(THREADS)
staged_forward(const Scalar* gx, const Target* gtarget, Loss* gloss, float2* gkept, Scalar* gdx, Index rows,
               Index length, Index pitch, Index run, Index jump, Index ignored, Index smoothing, Index z) {
  const Place at;
  const Options how(smoothing, z);
  const Index row = blockIdx.x / CLUSTER;
  const Aim aim(gtarget, row, rows, length, ignored);
  gx += start_of(row, rows, pitch, run, jump);
  gdx += row * length;
  const Index position = at.rank * THREADS + at.thread;
  const Span span(gx, position, THREADS * CLUSTER, aim.counts ? length : 0);
  Chunk* s_x = s_held + at.thread;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) span.copy_async(i, s_x[i * THREADS], gx + span.first(i));
    if (i == HALF - 1) Chunk::commit_copies();
  }
  Chunk::commit_copies();
  let_next_kernel_start();
  const float scale = scale_of(gkept, rows);
  const float logit = SMOOTH || position == 0 ? aim.logit(gx) : 0.f;
  float2 part = {-INF, 0.f};
  float over = 0.f;
  float values[VEC];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (i == 0) Chunk::wait_copies<1>();
    if (i == HALF) Chunk::wait_copies<0>();
    span.read(i, s_x[i * THREADS], -INF, values);
    take(part, values);
    if (SMOOTH) add_over(over, span, i, values, pivot_of(logit));
  }
  part = over_row(at, part);
  if (SMOOTH) {
#if CLUSTER > 1
    cluster_announce();
#endif
    over = at.total(over);
  }
  if (position == 0) {
    gloss[row] = narrow<Loss>(loss_of(aim, part, logit, over, length, how));
    gkept[row] = part;
  }
  const Gradient gradient(aim, part, scale, length, how);
  const float max = finite(part.x);
  const Span whole(gdx, position, THREADS * CLUSTER, length);
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    // What an ignored row has here was never copied.
    const Chunk chunk = s_x[i * THREADS];
#pragma unroll
    for (int j = 0; j < VEC; ++j) values[j] = aim.counts ? exp_below(chunk[j], max) : 0.f;
    gradient.apply(values, aim.target, whole.first(i));
    whole.write(i, gdx, values);
  }
}
