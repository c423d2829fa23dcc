// y = activation(gate) * up and its gradient, element by element: ACROSS threads take ITEMS vectors each of a row of
// every tensor, all of them on their way before the first is worked on; ROWS rows to a CTA.
//
// Rows have `columns` vectors and lie a pitch of vectors apart, each tensor's own. What is contiguous is one row, with
// `rest` elements behind its vectors. ACTIVATION is a struct of activations.cuh.

#include "activations.cuh"
#include "reduce.cuh"

// This thread's vectors of `tiles` CTAs' rows: at(i, pitch) is where the i-th lies in a tensor of that pitch.
struct Share {
  Index row, column, rows, columns;

  __device__ Share(Index rows, Index columns, unsigned tiles) : rows(rows), columns(columns) {
    row = Index(blockIdx.x / tiles) * ROWS + threadIdx.x / ACROSS;
    column = Index(blockIdx.x % tiles) * ACROSS * ITEMS + threadIdx.x % ACROSS;
  }
  __device__ bool holds(int i) const { return row < rows && column + i * ACROSS < columns; }
  __device__ Index at(int i, Index pitch) const { return (row * pitch + column + i * ACROSS) * VEC; }
};

// One of the last elements, fewer than VEC, to a thread of the last CTA.
__device__ inline bool is_rest(Index rest) { return blockIdx.x == gridDim.x - 1 && threadIdx.x < rest; }

extern "C" __global__ void __launch_bounds__(ACROSS* ROWS)
glu_forward(const Scalar* gate, const Scalar* up, Scalar* y, Index rows, Index columns, Index tiles,
            Index rest, Index gate_pitch, Index up_pitch, Index y_pitch) {
  const Share share(rows, columns, tiles);
  Chunk r_gate[ITEMS], r_up[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (share.holds(i)) {
      r_gate[i].load(gate + share.at(i, gate_pitch));
      r_up[i].load(up + share.at(i, up_pitch));
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (share.holds(i)) {
      float values[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) values[j] = ACTIVATION::at(r_gate[i][j]).value * r_up[i][j];
      Chunk chunk;
      chunk.pack(values);
      chunk.store(y + share.at(i, y_pitch));
    }
  }
  if (is_rest(rest)) {
    const Index at = columns * VEC + threadIdx.x;
    y[at] = narrow<Scalar>(ACTIVATION::at(widen(gate[at])).value * widen(up[at]));
  }
}

extern "C" __global__ void __launch_bounds__(ACROSS* ROWS)
glu_backward(const Scalar* dy, const Scalar* gate, const Scalar* up, Scalar* dgate, Scalar* dup, Index rows,
             Index columns, Index tiles, Index rest, Index dy_pitch, Index gate_pitch,
             Index up_pitch, Index dgate_pitch, Index dup_pitch) {
  const Share share(rows, columns, tiles);
  Chunk r_dy[ITEMS], r_gate[ITEMS], r_up[ITEMS];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (share.holds(i)) {
      r_dy[i].load(dy + share.at(i, dy_pitch));
      r_gate[i].load(gate + share.at(i, gate_pitch));
      r_up[i].load(up + share.at(i, up_pitch));
    }
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    if (share.holds(i)) {
      float to_gate[VEC], to_up[VEC];
#pragma unroll
      for (int j = 0; j < VEC; ++j) {
        const Curve curve = ACTIVATION::at(r_gate[i][j]);
        to_gate[j] = r_dy[i][j] * r_up[i][j] * curve.slope;
        to_up[j] = r_dy[i][j] * curve.value;
      }
      Chunk chunk;
      chunk.pack(to_gate);
      chunk.store(dgate + share.at(i, dgate_pitch));
      chunk.pack(to_up);
      chunk.store(dup + share.at(i, dup_pitch));
    }
  }
  if (is_rest(rest)) {
    const Index at = columns * VEC + threadIdx.x;
    const Curve curve = ACTIVATION::at(widen(gate[at]));
    dgate[at] = narrow<Scalar>(widen(dy[at]) * widen(up[at]) * curve.slope);
    dup[at] = narrow<Scalar>(widen(dy[at]) * curve.value);
  }
}
