// Rows spread over the whole chip: every CTA of a cooperative grid has the same share of each row, and the shares' parts
// meet through device memory.
//
// A CTA walks its shares of all rows as one stream of tiles, ITEMS * THREADS vectors of each of INPUTS tensors, through
// a ring of RING tiles in shared memory, the last TAIL of which are then held in registers: a row that fills more than
// half of the ring leaves too little of it otherwise. A step asks for the tile FLIGHT ahead, takes one tile into its
// row's part, and writes the tile LEAD behind. A share, TILES tiles, must be shorter than LEAD: its part is then handed
// out before any of it is written, and what is left of LEAD hides the time until the row's total is known.
// Two warps beside the THREADS do nothing but send this CTA's parts and gather all CTAs' ones: a round trip takes 2 to
// 4 us, for which the others would stand still.
#pragma once

#include "row.cuh"

extern __shared__ __align__(128) Chunk s_ring[];
constexpr int LEAD = RING - FLIGHT + TAIL, TILE = ITEMS * THREADS;
// Rows of which parts or totals are there at once: a row's place is used again when all have known its total, and LEAD
// tiles behind what a thread takes it has. With one for each tile of LEAD there was no room for a tile more of the ring.
constexpr int DEPTH = (LEAD + TILES - 1) / TILES + 2;
// Registers come in shares of four warps, so that two helpers cost as much as four.
constexpr int HELPERS = 4, BLOCK = THREADS + HELPERS * WARP;

// Two floats in one word, which one store makes visible; zero, in which no pair is sent, is a word not yet written.
using Word = unsigned long long;

__device__ inline void send(Word* to, float2 pair) {
  Word word = ~(Word(__float_as_uint(pair.y)) << 32 | __float_as_uint(pair.x));
  if (!word) word = 1;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

// Whether a word is there; all words of a part.
__device__ inline bool open_word(Word word, float2& pair) {
  const bool sent = word != 0;
  word = ~word;
  pair = {__uint_as_float(unsigned(word)), __uint_as_float(unsigned(word >> 32))};
  return sent;
}
__device__ inline bool receive(const Word* from, float2& part) {
  Word word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return open_word(word, part);
}
template <typename Part> __device__ bool receive(const Word* from, Part& part) {
  static_assert(sizeof(Part) == 2 * sizeof(Word));
  Word first, second;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(from) : "memory");
  float2* pairs = reinterpret_cast<float2*>(&part);
  const bool sent = open_word(first, pairs[0]);
  return open_word(second, pairs[1]) && sent;
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

  __device__ void advance() {
    if (++tile == TILES) tile = 0, ++row;
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
  Index rows;
  Offset length, share;
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

  __device__ Word* words(Index row, int cta) const { return parts + (row * CTAS + cta) * WORDS; }

  // This thread's vectors of a tile; nothing beyond the share. `full`: there is nothing beyond.
  __device__ Span span(const Scalar* row, int tile, bool full = false) const {
    Span span(row, blockIdx.x * share + tile * TILE + threadIdx.x, THREADS, length, full);
    const Offset end = span.start + (share - tile * TILE - Offset(threadIdx.x)) * VEC;
    if (!full && end < span.n) span.n = end;
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
  // In the same order everywhere. Asks only when this CTA's own part is there, only for what has not come, and not all
  // the time: the words lie in a few lines, and 132 warps that wait for them slow down the part of L2 that has them. A
  // grid of which a part never comes traps after some seconds.
  __device__ void gather_all() const {
    constexpr int EACH = (CTAS + WARP - 1) / WARP;
    for (Index row = 0; row < rows; ++row) {
      Part others[EACH];
      unsigned missing = 0;
#pragma unroll
      for (int i = 0; i < EACH; ++i) missing |= unsigned(i * WARP + lane < CTAS) << i;
      barrier_wait(s_board.left + row % DEPTH, row / DEPTH % 2);
      for (int turn = 0;; ++turn) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
          if (missing >> i & 1 && receive(words(row, i * WARP + lane), others[i])) missing ^= 1u << i;
        }
        if (!__any_sync(0xffffffffu, missing)) break;
        if (turn) __nanosleep(50);
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
};

// Calls step<FIRST>, ..., step<END - 1>: what is held in registers is named by numbers that the compiler knows.
template <int FIRST, int END, typename Steps> __device__ __forceinline__ void each(Steps& steps) {
  if constexpr (FIRST < END) {
    steps.template step<FIRST>();
    each<FIRST + 1, END>(steps);
  }
}

// A thread's walk. `Work` asks for vectors of each input, takes them into a part, is told the row's total (`know`), and
// writes what `Work::Held` holds of a tile, with `Work::Parameters` that belong to the tile and are the same for all rows:
// fetched a step's taking before they are wanted, or, if they are KEPT, once. `Work::How` says how parts add up, and
// `whole` makes one of what a thread has taken of a row.
template <typename Work> struct Walk {
  using How = typename Work::How;
  using Parameters = typename Work::Parameters;
  static constexpr bool KEPT = Parameters::KEPT;
  // Steps after which tiles and places in registers are the same again.
  static constexpr int SLOTS = TAIL ? TAIL : 1, UNROLL = !KEPT ? SLOTS : TILES % SLOTS ? TILES * SLOTS : TILES;

  const Chip<Work>& chip;
  Work& work;
  Index steps, now = 0;
  Cursor asked, taken, written;
  typename Work::Part part = How::nothing();
  typename Work::Held r_tail[SLOTS];
  Parameters r_parameters[KEPT ? TILES : 1];

  struct Keep {
    Walk& walk;
    template <int AT> __device__ __forceinline__ void step() {
      walk.r_parameters[AT].template keep<AT>(walk.work, walk.chip.span(walk.work.from(0), AT));
    }
  };
  struct Fill {
    Walk& walk;
    template <int AT> __device__ __forceinline__ void step() {
      walk.take();
      walk.r_tail[AT].hold(walk.asked.held());
      walk.ask();
    }
  };

  // Whether every CTA has all of a tile. -1: one that the compiler does not know.
  static __device__ constexpr bool full(int tile) { return tile >= 0 && tile < FULL; }

  // The place of the tile to be asked for is that of the tile to be written, or moved to registers, before.
  template <int AT = -1> __device__ __forceinline__ void ask() {
    if (now + FLIGHT < steps) work.ask(chip.span(work.from(asked.row), asked.tile, full(AT)), asked.row, asked.held());
    Chunk::commit_copies();
    asked.advance();
    ++now;
  }
  template <int AT = -1> __device__ __forceinline__ void take() {
    Chunk::wait_copies<FLIGHT - 1>();
    if (now >= steps) return;
    typename Work::Part more = part;
    work.take(chip.span(work.from(taken.row), taken.tile, full(AT)), taken.row, taken.held(), more);
    part = more;
    if (AT < 0 ? taken.tile == TILES - 1 : AT == TILES - 1) {
      chip.leave(taken.row, Work::whole(part));
      part = How::nothing();
    }
    taken.advance();
  }
  template <int AT> __device__ __forceinline__ void step() {
    if (UNROLL > (KEPT ? TILES : 1) && now >= steps + LEAD) return;
    constexpr int PLACE = AT % SLOTS, TILE_WRITTEN = KEPT ? AT % TILES : -1;
    constexpr int TILE_TAKEN = KEPT ? (AT + LEAD) % TILES : -1, TILE_ASKED = KEPT ? (AT + LEAD + FLIGHT) % TILES : -1;
    // By the cursor, though AT says as much: the addresses of all tiles at once would take registers.
    const Span span = chip.span(work.from(written.row), written.tile, full(TILE_WRITTEN));
    Parameters parameters = r_parameters[KEPT ? AT % TILES : 0];
    parameters.template fetch<KEPT ? AT % TILES : 0>(work, span);
    take<TILE_TAKEN>();
    if (KEPT ? TILE_WRITTEN == 0 : written.tile == 0) work.know(written.row, chip.total(written.row));
    if (!TAIL) r_tail[0].hold(asked.held());
    work.write(span, written.row, r_tail[PLACE], parameters);
    if (TAIL) r_tail[PLACE].hold(asked.held());
    written.advance();
    ask<TILE_ASKED>();
  }
  __device__ __forceinline__ void run() {
    now = -FLIGHT;
#pragma unroll 1
    while (now < 0) ask();
    Keep keep{*this};
    if constexpr (KEPT) each<0, TILES>(keep);
#pragma unroll 1
    while (now < LEAD - TAIL) take(), ask();
    Fill fill{*this};
    each<0, TAIL>(fill);
#pragma unroll 1
    while (now < steps + LEAD) each<0, UNROLL>(*this);
  }
};

// Kept parameters want more registers than all warps have alike; the helpers do with fewer.
template <int COUNT> __device__ void take_registers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}
template <int COUNT> __device__ void leave_registers() {
#if __CUDA_ARCH__ >= 900
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

template <typename Work> __device__ void over_chip(Work& work, Word* parts, Index rows, Index length, Index share) {
  constexpr bool KEPT = Work::Parameters::KEPT;
  static_assert(!KEPT || THREADS == 256 || THREADS == 512);
  __shared__ Board<typename Work::Part> s_board;
  static_assert(sizeof(s_board) <= BOARD_BYTES);
  const Chip<Work> chip{s_board, parts, rows, Offset(length), Offset(share)};
  if (threadIdx.x < DEPTH) {
    barrier_init(s_board.left + threadIdx.x, WARPS);
    barrier_init(s_board.known + threadIdx.x, 1);
  }
  __syncthreads();
  if (chip.warp < WARPS) {
    if constexpr (KEPT) take_registers<THREADS == 256 ? 232 : 104>();
    Walk<Work> walk{chip, work, rows * TILES};
    walk.run();
    return;
  }
  if constexpr (KEPT) leave_registers<40>();
  if (chip.warp == WARPS) chip.send_all();
  if (chip.warp == WARPS + 1) chip.gather_all();
}

// Read once and not wanted again, or wanted for every row: what L2 keeps last and first.
__device__ inline Word policy_once() {
  Word policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline Word policy_always() {
  Word policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
