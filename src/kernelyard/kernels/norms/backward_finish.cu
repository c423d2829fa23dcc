// Adds up the parts of dweight and dbias that the CTAs of another kernel left: plane 0 the one's, plane 1 the other's,
// each of `parts` rows of `length` floats. ACROSS vectors of VEC columns to a CTA, ALONG threads to a column. The order of
// the sum depends on nothing but `parts`.

#include "reduce.cuh"

extern "C" __global__ void __launch_bounds__(ACROSS * ALONG)
backward_finish(const float* gparts, Scalar* gfirst, Scalar* gsecond, Index parts, Index length) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  using Sums = Vector<float, VEC>;
  const int across = threadIdx.x % ACROSS, along = threadIdx.x / ACROSS;
  const Index column = (Index(blockIdx.x) * ACROSS + across) * VEC;
  gparts += blockIdx.y * parts * length + column;
  float sums[VEC] = {};
  if (column < length) {
#pragma unroll 8
    for (Index part = along; part < parts; part += ALONG) {
      Sums more;
      more.load(gparts + part * length);
#pragma unroll
      for (int j = 0; j < VEC; ++j) sums[j] += more[j];
    }
  }
  __shared__ float s_sums[ALONG][VEC][ACROSS];
#pragma unroll
  for (int j = 0; j < VEC; ++j) s_sums[along][j][across] = sums[j];
  __syncthreads();
  if (along > 0 || column >= length) return;
#pragma unroll
  for (int i = 1; i < ALONG; ++i) {
#pragma unroll
    for (int j = 0; j < VEC; ++j) sums[j] += s_sums[i][j][across];
  }
  Chunk result;
  result.pack(sums);
  result.store((blockIdx.y ? gsecond : gfirst) + column);
}
