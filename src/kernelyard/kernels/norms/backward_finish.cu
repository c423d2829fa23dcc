// Adds up the parts of dweight and dbias that the CTAs of another kernel left: plane 0 the one's, plane 1 the other's,
// each of `parts` rows of `length` floats. The order of the sum depends on nothing but `parts`.

#include "reduce.cuh"

constexpr int WARPS = THREADS / WARP;

extern "C" __global__ void __launch_bounds__(THREADS)
backward_finish(const float* gparts, Scalar* gfirst, Scalar* gsecond, Index parts, Index length) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const Index column = Index(blockIdx.x) * WARP + lane;
  gparts += blockIdx.y * parts * length + column;
  float sum = 0.f;
  if (column < length) {
#pragma unroll 8
    for (Index part = warp; part < parts; part += WARPS) sum += gparts[part * length];
  }
  __shared__ float s_sums[WARPS][WARP + 1];
  s_sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= length) return;
#pragma unroll
  for (int w = 1; w < WARPS; ++w) sum += s_sums[w][lane];
  (blockIdx.y ? gsecond : gfirst)[column] = narrow<Scalar>(sum);
}
