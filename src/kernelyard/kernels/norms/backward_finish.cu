// Adds up the parts of dweight and dbias that the CTAs of another kernel left: plane 0 the one's, plane 1 the other's,
// each of `parts` rows of `length` floats. ACROSS columns to a CTA, ALONG threads to a column. The order of the sum
// depends on nothing but `parts`.

#include "reduce.cuh"

extern "C" __global__ void __launch_bounds__(ACROSS * ALONG)
backward_finish(const float* gparts, Scalar* gfirst, Scalar* gsecond, Index parts, Index length) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const int across = threadIdx.x % ACROSS, along = threadIdx.x / ACROSS;
  const Index column = Index(blockIdx.x) * ACROSS + across;
  gparts += blockIdx.y * parts * length + column;
  float sum = 0.f;
  if (column < length) {
#pragma unroll 8
    for (Index part = along; part < parts; part += ALONG) sum += gparts[part * length];
  }
  __shared__ float s_sums[ALONG][ACROSS];
  s_sums[along][across] = sum;
  __syncthreads();
  if (along > 0 || column >= length) return;
#pragma unroll
  for (int i = 1; i < ALONG; ++i) sum += s_sums[i][across];
  (blockIdx.y ? gsecond : gfirst)[column] = narrow<Scalar>(sum);
}
