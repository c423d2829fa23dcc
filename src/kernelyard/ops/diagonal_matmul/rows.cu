// diag(a) @ B: rows times a factor each, and the gradients of both in one pass.
//
// Nothing waits for a row's end, so a row may be cut anywhere: ROWS short ones to a CTA, or with CHUNKED a long one to
// `chunks` CTAs. FACTOR is the type of a's elements.

#include "overlap.cuh"
#include "row.cuh"

using Factor = FACTOR;

// The piece of a row that a CTA's threads work on.
struct Piece {
  Index row;
  int chunk = 0;
  Offset length;

  __device__ Piece(Index rows, Index length, Index chunks) {
    unsigned group = blockIdx.x;
    if (CHUNKED) {
      chunk = group % unsigned(chunks);
      group /= unsigned(chunks);
    }
    row = Index(group) * ROWS + threadIdx.x / THREADS;
    this->length = row < rows ? length : 0;
  }
  __device__ Span span(const Scalar* start, const Place& at) const {
    return Span(start, Offset(chunk) * (ITEMS * THREADS) + at.thread, THREADS, length);
  }
};

extern "C" __global__ void __launch_bounds__(THREADS * ROWS)
rows_forward(const Factor* ga, const Scalar* gb, Scalar* gy, Index rows, Index length, Index pitch, Index chunks) {
  const Place at;
  const Piece own(rows, length, chunks);
  gb += own.row * pitch;
  gy += own.row * length;
  const float factor = own.row < rows ? widen(ga[own.row]) : 0.f;
  const Span span = own.span(gb, at);
  Chunk r_b[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) span.load(i, r_b[i], gb + span.first(i));
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    float values[VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) values[j] = factor * r_b[i][j];
    span.write(i, gy, values);
  }
}

// gda is null where a wants no gradient, and B is not read then; gdb is null where B wants none. With CHUNKED the parts
// of da go to g_parts, for rows_finish.
extern "C" __global__ void __launch_bounds__(THREADS * ROWS)
rows_backward(const Scalar* gdy, const Factor* ga, const Scalar* gb, Factor* gda, Scalar* gdb, float* g_parts,
              Index rows, Index length, Index pitch, Index chunks) {
  const Place at;
  const Piece own(rows, length, chunks);
  if (CHUNKED) let_next_kernel_start();
  gdy += own.row * length;
  gb += own.row * pitch;
  const float factor = own.row < rows ? widen(ga[own.row]) : 0.f;
  float dot = 0.f;
  const Span span = own.span(gdy, at);
  Chunk r_dy[ITEMS], r_b[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (span.touches(i)) {
      span.load(i, r_dy[i], gdy + span.first(i));
      if (gda) span.load(i, r_b[i], gb + span.first(i));
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    float dy[VEC], b[VEC];
    span.read(i, r_dy[i], 0.f, dy);
    if (gda) {
      span.read(i, r_b[i], 0.f, b);
      // A vector's sum by itself: 32 additions in a row would round twice as much.
      float part = 0.f;
#pragma unroll
      for (int j = 0; j < VEC; ++j) part += dy[j] * b[j];
      dot += part;
    }
    if (gdb) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) dy[j] *= factor;
      span.write(i, gdb + own.row * length, dy);
    }
  }
  if (gda) {
    dot = at.total(dot);
    if (at.thread == 0 && own.row < rows) {
      if (CHUNKED) {
        g_parts[blockIdx.x] = dot;
      } else {
        gda[own.row] = narrow<Factor>(dot);
      }
    }
  }
}

// One CTA to a row: adds up its parts, always in the same order.
extern "C" __global__ void __launch_bounds__(THREADS)
rows_finish(const float* g_parts, Factor* gda, Index chunks) {
  const Place at;
  await_previous_kernel();
  float dot = 0.f;
  for (Index chunk = at.thread; chunk < chunks; chunk += THREADS) dot += g_parts[blockIdx.x * chunks + chunk];
  dot = at.total(dot);
  if (at.thread == 0) gda[blockIdx.x] = narrow<Factor>(dot);
}
