// Kernels that start while the one before them on the stream ends (Launcher(overlapping=True)). On chips older than
// sm_90 kernels follow one another and both calls are empty.
#pragma once

// Waits until all memory that the previous kernel wrote is there. Before it, nothing of that kernel may be read.
__device__ inline void await_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the next kernel to start as CTAs of this one make room; without it that is when all have ended.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
