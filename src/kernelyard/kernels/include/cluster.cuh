// Thread block clusters in PTX: cooperative_groups.h costs 1.6 s of compile time. Only sm_90 and newer have them; a
// kernel for an older chip is built with a cluster of 1 and calls none of this.
#pragma once

#if __CUDA_ARCH__ >= 900
__device__ inline unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Says that this CTA runs and its shared memory may be written by peers.
__device__ inline void cluster_announce() { asm volatile("barrier.cluster.arrive.relaxed.aligned;"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// All writes before it, remote ones too, are seen by every thread of the cluster after it.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  cluster_wait();
}

// Writes a part of 8 or 16 bytes to the same place of a peer's shared memory as `local` has in this CTA's.
template <typename Part> __device__ void store_remote(Part* local, unsigned peer, const Part& part) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(local));
  const float* from = reinterpret_cast<const float*>(&part);
  unsigned remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(peer));
  if constexpr (sizeof(Part) == 8) {
    asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(remote), "f"(from[0]), "f"(from[1]) : "memory");
  } else {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(remote), "f"(from[0]), "f"(from[1]),
                 "f"(from[2]), "f"(from[3])
                 : "memory");
  }
}
#endif
