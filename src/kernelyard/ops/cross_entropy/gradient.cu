// The gradient computed from the logits and what the forward pass kept of each row, for any upstream gradient: one
// number for all rows, or with EACH one for every row; 1 without gdy.
//
// CTA (x, y) works on chunk y of rows x, x + gridDim.x, ... With `made`, what lies in gdx is the gradient for an upstream
// gradient of 1, and there is nothing to do where it is that.

#include "loss.cuh"
#include "row.cuh"

extern "C" __global__ void __launch_bounds__(THREADS * ROWS)
gradient_backward(const Scalar* gdy, const Scalar* gx, const Target* gtarget, const float2* gkept, Scalar* gdx,
                  Index rows, Index length, Index pitch, Index run, Index jump, Index ignored, Index smoothing, Index z,
                  Index made) {
  if (made) await_previous_kernel();
  const float dy = EACH || !gdy ? 1.f : widen(*gdy);
  if (made && dy == 1.f) return;
  const Options how(smoothing, z);
  const float scale = EACH ? 1.f : dy * reinterpret_cast<const float*>(gkept)[2 * rows];
  const Offset position = (Offset(blockIdx.y) * ITEMS) * THREADS + threadIdx.x % THREADS;
  for (Index group = blockIdx.x; group * ROWS < rows; group += gridDim.x) {
    const Index row = group * ROWS + threadIdx.x / THREADS;
    if (row >= rows) return;
    const Aim aim(gtarget, row, rows, length, ignored);
    const Scalar* gx_row = gx + start_of(row, rows, pitch, run, jump);
    Scalar* gdx_row = gdx + row * length;
    const Span span(gx_row, position, THREADS, aim.counts ? length : 0), whole(gdx_row, position, THREADS, length);
    Chunk r_x[ITEMS];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      if (span.touches(i)) span.load(i, r_x[i], gx_row + span.first(i));
    }
    const float2 pair = gkept[row];
    const Gradient gradient(aim, pair, EACH && gdy ? widen(gdy[row]) : scale, length, how);
    const float max = finite(pair.x);
    float values[VEC];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      span.read(i, r_x[i], -INF, values);
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = exp_below(values[j], max);
      gradient.apply(values, aim.target, whole.first(i));
      whole.write(i, gdx_row, values);
    }
  }
}
