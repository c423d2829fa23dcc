"""KernelBench level 1, problem 23: softmax over rows of 393216 floats, in CUDA C++ through `load_inline`.

A row is 1.5 MB and fits no SM, but a cluster of 16 CTAs holds it in registers: 48 floats to each of 512 threads. So x
is read once and y written once, where a kernel per SM reads x twice. The CTAs meet once, over distributed shared
memory, to agree on the row's maximum and sum.
"""

import os

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <cooperative_groups.h>
#include <ATen/cuda/CUDAContext.h>
namespace cg = cooperative_groups;

constexpr int THREADS = 512, VECTORS = 12, CLUSTER = 16;

__device__ float2 combine(float2 a, float2 b) {
  const float max = fmaxf(a.x, b.x);
  return {max, a.y * __expf(a.x - max) + b.y * __expf(b.x - max)};
}

__device__ float2 over_warp(float2 part) {
  for (int offset = 16; offset > 0; offset /= 2) {
    part = combine(part, {__shfl_xor_sync(~0u, part.x, offset), __shfl_xor_sync(~0u, part.y, offset)});
  }
  return part;
}

// n is a multiple of 4; a thread's vectors are a cluster's width apart, so that a warp reads 512 bytes in a row.
__global__ void __launch_bounds__(THREADS) softmax(const float* __restrict__ x, float* __restrict__ y, int n) {
  __shared__ float2 s_parts[THREADS / 32], s_cta;
  cg::cluster_group cluster = cg::this_cluster();
  const int rank = cluster.block_rank(), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long row = blockIdx.x / CLUSTER;
  const float4* g_x = reinterpret_cast<const float4*>(x + row * n);
  float4* g_y = reinterpret_cast<float4*>(y + row * n);

  float4 r_x[VECTORS];
  float2 part = {-1e30f, 0.f};
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int at = (i * CLUSTER + rank) * THREADS + threadIdx.x;
    r_x[i] = at < n / 4 ? __ldcs(g_x + at) : make_float4(-1e30f, -1e30f, -1e30f, -1e30f);
  }
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) part.x = fmaxf(part.x, fmaxf(fmaxf(r_x[i].x, r_x[i].y), fmaxf(r_x[i].z, r_x[i].w)));
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    part.y += (expf(r_x[i].x - part.x) + expf(r_x[i].y - part.x)) + (expf(r_x[i].z - part.x) + expf(r_x[i].w - part.x));
  }
  part = over_warp(part);
  if (lane == 0) s_parts[warp] = part;
  __syncthreads();
  if (warp == 0) {
    part = over_warp(lane < THREADS / 32 ? s_parts[lane] : make_float2(-1e30f, 0.f));
    if (lane == 0) s_cta = part;
  }
  cluster.sync();
  part = over_warp(lane < CLUSTER ? *cluster.map_shared_rank(&s_cta, lane) : make_float2(-1e30f, 0.f));
  cluster.sync();

  const float scale = 1.f / part.y;
#pragma unroll
  for (int i = 0; i < VECTORS; ++i) {
    const int at = (i * CLUSTER + rank) * THREADS + threadIdx.x;
    const float4 v = r_x[i];
    const float4 out = {expf(v.x - part.x) * scale, expf(v.y - part.x) * scale, expf(v.z - part.x) * scale,
                        expf(v.w - part.x) * scale};
    if (at < n / 4) __stcs(g_y + at, out);
  }
}

torch::Tensor softmax_rows(torch::Tensor x) {
  const int n = x.size(1);
  TORCH_CHECK(x.is_cuda() && x.dtype() == torch::kFloat && x.is_contiguous(), "expected contiguous fp32 on a GPU");
  TORCH_CHECK(n % 4 == 0 && n <= THREADS * VECTORS * CLUSTER * 4, "expected rows of at most 393216, a multiple of 4");
  torch::Tensor y = torch::empty_like(x);
  cudaFuncSetAttribute(softmax, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = CLUSTER;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(x.size(0) * CLUSTER);
  config.blockDim = dim3(THREADS);
  config.stream = at::cuda::getCurrentCUDAStream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t error =
      cudaLaunchKernelEx(&config, softmax, (const float*)x.data_ptr<float>(), y.data_ptr<float>(), n);
  TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
  return y;
}
"""

# Clusters need the H100's own target.
os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0a"
kernels = load_inline(
    name="cluster_softmax",
    cpp_sources="torch::Tensor softmax_rows(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["softmax_rows"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return kernels.softmax_rows(x)
