// What keeps memory busy while a row is worked on: barriers that count bytes, and copies of whole rows into shared
// memory that one thread starts and no register holds. Hopper and newer.
#pragma once

#if __CUDA_ARCH__ >= 900
__device__ inline unsigned shared_address(const void* place) {
  return static_cast<unsigned>(__cvta_generic_to_shared(place));
}

// An mbarrier in shared memory. A phase ends when all have arrived and all bytes announced have come.
struct Barrier {
  unsigned long long state;

  __device__ void start(unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }
  __device__ void arrive_expecting(unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                 : "memory");
  }
  // Waits for the end of the phase of this parity. A wait that never ends is an error of ours: better a trap than a
  // kernel that hangs.
  __device__ void wait(unsigned parity) {
    for (unsigned tries = 0; tries < 1u << 26; ++tries) {
      unsigned done;
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                   "selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(shared_address(this)), "r"(parity)
                   : "memory");
      if (done) return;
    }
    __trap();
  }
};

// After the barriers are started, before a __syncthreads or cluster_sync that lets others use them.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// The aligned 16 bytes that cover `count` elements: where they start, and how many bytes. What is read beyond the
// elements lies in the same 16 bytes of memory as one of them.
struct Cover {
  unsigned long long start;
  unsigned bytes;

  template <typename T> __device__ Cover(const T* from, int count) {
    const unsigned long long first = reinterpret_cast<unsigned long long>(from);
    start = first & ~15ull;
    bytes = count > 0 ? static_cast<unsigned>(((first + count * sizeof(T) + 15) & ~15ull) - start) : 0;
  }
  __device__ void copy_bulk(void* to, Barrier& barrier) const {
    if (bytes == 0) return;
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(start), "r"(bytes), "r"(shared_address(&barrier))
                 : "memory");
  }
  // Where memory may end at `limit`, nothing beyond it is read: elements in its last 16 bytes are copied here and now, by
  // the thread that arrives at the barrier afterwards.
  template <typename T> __device__ void end_before(const T* limit, void* to, const T* from, int count) {
    if (start + bytes <= reinterpret_cast<unsigned long long>(limit)) return;
    if (bytes > 0) bytes -= 16;
    const T* left = reinterpret_cast<const T*>(start + bytes);
    for (const T* at = left < from ? from : left; at < from + count; ++at) {
      static_cast<T*>(to)[at - reinterpret_cast<const T*>(start)] = *at;
    }
  }
};

// One float into shared memory; commit_copies and wait_copies of elements.cuh tell when it is there.
__device__ inline void copy_async(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}

// A part of 8 or 16 bytes to the same place of a peer's shared memory, and as many bytes to the peer's barrier.
template <typename Part> __device__ void send_to_peer(Part* local, Barrier* barrier, unsigned peer, const Part& part) {
  const float* from = reinterpret_cast<const float*>(&part);
  unsigned place, counter;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(place) : "r"(shared_address(local)), "r"(peer));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counter) : "r"(shared_address(barrier)), "r"(peer));
  if constexpr (sizeof(Part) == 8) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(place),
                 "f"(from[0]), "f"(from[1]), "r"(counter)
                 : "memory");
  } else {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(place),
                 "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]), "r"(counter)
                 : "memory");
  }
}

// Lets a kernel that was launched to overlap with this one take the place that CTAs of this one leave.
__device__ inline void let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }
#endif
