// Rows spread over the whole chip: every CTA of a cooperative grid has the same share of each row, and the shares' parts
// meet through device memory.
//
// A CTA walks its shares of all rows as one stream of tiles, ITEMS * THREADS vectors of each of INPUTS tensors, through
// a ring of RING tiles in shared memory. A step asks for the tile FLIGHT ahead, takes one tile into its row's part, and
// writes the tile LEAD behind, whose place the asked one then has. A share must be shorter than LEAD tiles: its part is
// then handed out before any of it is written, and what is left of LEAD hides the time until the row's total is known.
// Two warps beside the THREADS do nothing but send this CTA's parts and gather all CTAs' ones: a round trip takes 2 us
// and more, for which the others would stand still.
#pragma once

#include "row.cuh"

extern __shared__ __align__(128) Chunk s_ring[];
constexpr int LEAD = RING - FLIGHT, TILE = ITEMS * THREADS;
// Rows between the first that is not yet written and the last that is asked for, at most.
constexpr int DEPTH = LEAD + 2;

// Two floats in one word, which one store makes visible; zero, in which no pair is sent, is a word not yet written.
using Word = unsigned long long;

__device__ inline void send(Word* to, float2 pair) {
  Word word = ~(Word(__float_as_uint(pair.y)) << 32 | __float_as_uint(pair.x));
  if (!word) word = 1;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

__device__ inline bool receive(const Word* from, float2& pair) {
  Word word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  const bool sent = word != 0;
  word = ~word;
  pair = {__uint_as_float(unsigned(word)), __uint_as_float(unsigned(word >> 32))};
  return sent;
}

// A barrier in shared memory: `count` arrivals end a phase; who waits names the parity of the phase.
__device__ inline unsigned at_shared(const void* place) {
  return static_cast<unsigned>(__cvta_generic_to_shared(place));
}
__device__ inline void barrier_init(Word* barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at_shared(barrier)), "r"(count) : "memory");
}
__device__ inline void barrier_arrive(Word* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(at_shared(barrier)) : "memory");
}
#if __CUDA_ARCH__ >= 900
#define BARRIER_WAIT "mbarrier.try_wait.parity.shared.b64"
#else
#define BARRIER_WAIT "mbarrier.test_wait.parity.shared.b64"
#endif
__device__ inline void barrier_wait(const Word* barrier, unsigned parity) {
  unsigned over = 0;
  while (!over) {
    asm volatile(
        "{ .reg .pred p; " BARRIER_WAIT " p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(over)
        : "r"(at_shared(barrier)), "r"(parity)
        : "memory");
  }
}

// A walker over the tiles of this CTA's shares.
struct Cursor {
  Index row = 0;
  int tile = 0, slot = 0;

  __device__ void advance(int tiles) {
    if (++tile == tiles) tile = 0, ++row;
    if (++slot == RING) slot = 0;
  }
  // This thread's vectors of the first input; those of the next lie TILE vectors on.
  __device__ Chunk* held() const { return s_ring + slot * INPUTS * TILE + threadIdx.x; }
};

// Where the parts of a CTA's warps and the totals of rows lie, and who may read them.
template <typename Part> struct Board {
  Part parts[DEPTH][WARPS], totals[DEPTH];
  Word left[DEPTH], known[DEPTH];
};

// `share` vectors of every row to each of CTAS CTAs; the words of parts[row][CTA] were zero at the launch.
template <typename Work> struct Chip {
  using How = typename Work::How;
  using Part = typename Work::Part;
  static constexpr int WORDS = sizeof(Part) / sizeof(Word);
  Board<Part>& s_board;
  Word* parts;
  Index rows, length, share;
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

  __device__ Word* words(Index row, int cta) const { return parts + (row * CTAS + cta) * WORDS; }

  // This thread's vectors of a tile; nothing beyond the share.
  __device__ Span span(const Scalar* row, int tile) const {
    Span span(row, blockIdx.x * share + tile * TILE + threadIdx.x, THREADS, length);
    const Offset end = span.start + ((share - tile * TILE) - Offset(threadIdx.x)) * VEC;
    if (end < span.n) span.n = end;
    return span;
  }

  __device__ void leave(Index row, Part part) const {
    part = How::template over<WARP, 1>(part);
    if (lane == 0) {
      s_board.parts[row % DEPTH][warp] = part;
      barrier_arrive(s_board.left + row % DEPTH);
    }
  }
  __device__ Part total(Index row) const {
    barrier_wait(s_board.known + row % DEPTH, row / DEPTH % 2);
    return s_board.totals[row % DEPTH];
  }

  __device__ void send_all() const {
    for (Index row = 0; row < rows; ++row) {
      const int place = row % DEPTH;
      barrier_wait(s_board.left + place, row / DEPTH % 2);
      const Part part = How::template over<WARP, 1>(lane < WARPS ? s_board.parts[place][lane] : How::nothing());
      const float2* pairs = reinterpret_cast<const float2*>(&part);
      if (lane < WORDS) send(words(row, blockIdx.x) + lane, pairs[lane]);
    }
  }
  // In the same order everywhere. Asks only when this CTA's own part is there, and not all the time: the words lie in a
  // few lines, and 132 warps that wait for them would slow down the part of L2 that has them. A grid of which a part
  // never comes traps after some seconds.
  __device__ void gather_all() const {
    constexpr int EACH = (CTAS + WARP - 1) / WARP;
    for (Index row = 0; row < rows; ++row) {
      Part others[EACH];
      barrier_wait(s_board.left + row % DEPTH, row / DEPTH % 2);
      for (int turn = 0;; ++turn) {
        bool all = true;
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
          const int cta = i * WARP + lane;
          float2* pairs = reinterpret_cast<float2*>(others + i);
#pragma unroll
          for (int word = 0; word < WORDS; ++word) {
            if (cta < CTAS) all &= receive(words(row, cta) + word, pairs[word]);
          }
        }
        if (__all_sync(0xffffffffu, all)) break;
        if (turn) __nanosleep(200);
        if (turn == 1 << 22) __trap();
      }
      Part part = How::nothing();
#pragma unroll
      for (int i = 0; i < EACH; ++i) {
        if (i * WARP + lane < CTAS) part = How::add(part, others[i]);
      }
      part = How::template over<WARP, 1>(part);
      if (lane == 0) {
        s_board.totals[row % DEPTH] = part;
        barrier_arrive(s_board.known + row % DEPTH);
      }
    }
  }

  // `Work` asks for vectors of each input, takes them into a part, is told the row's total (`know`), and writes;
  // `Work::How` says how parts add up.
  __device__ void walk(Work work) const {
    const int tiles = (share + TILE - 1) / TILE;
    const Index steps = rows * tiles;
    Cursor asked, taken, written;
    const auto ask = [&](Index step) {
      if (step < steps) work.ask(span(work.from(asked.row), asked.tile), asked.row, asked.held());
      Chunk::commit_copies();
      asked.advance(tiles);
    };
    for (int step = 0; step < FLIGHT; ++step) ask(step);
    Part part = How::nothing();
    for (Index step = 0; step < steps + LEAD; ++step) {
      Chunk::wait_copies<FLIGHT - 1>();
      if (step < steps) {
        work.take(span(work.from(taken.row), taken.tile), taken.row, taken.held(), part);
        if (taken.tile == tiles - 1) {
          leave(taken.row, part);
          part = How::nothing();
        }
        taken.advance(tiles);
      }
      if (step >= LEAD) {
        if (written.tile == 0) work.know(written.row, total(written.row));
        work.write(span(work.from(written.row), written.tile), written.row, written.held());
        written.advance(tiles);
      }
      ask(step + FLIGHT);
    }
  }
};

template <typename Work> __device__ void over_chip(const Work& work, Word* parts, Index rows, Index length, Index share) {
  __shared__ Board<typename Work::Part> s_board;
  const Chip<Work> chip{s_board, parts, rows, length, share};
  if (threadIdx.x < DEPTH) {
    barrier_init(s_board.left + threadIdx.x, WARPS);
    barrier_init(s_board.known + threadIdx.x, 1);
  }
  __syncthreads();
  if (chip.warp < WARPS) {
    chip.walk(work);
  } else if (chip.warp == WARPS) {
    chip.send_all();
  } else {
    chip.gather_all();
  }
}
