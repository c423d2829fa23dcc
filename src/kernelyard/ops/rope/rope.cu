// Rotation of heads by position: one launch for q and k, each element read and written once.
//
// A unit is two vectors, closed under the rotation: one and the one HALF behind it; single elements of interleaved pairs
// are neighbours instead. UNITS units make a head; SLOTS heads of a token and TOKENS tokens stand side by side in a CTA,
// and a thread takes ITEMS heads, SLOTS apart, with the cosines and sines that it has loaded once. CTAs follow one
// another as memory does, heads or tokens first (HEADS_FIRST), but for chunks of `tiles` CTAs of tokens: they end where
// L2 would no longer hold the tables for the next heads and batches.

#include "reduce.cuh"

using Table = TABLE;
constexpr int UNIT = 2 * VEC;
constexpr bool NEIGHBOURS = INTERLEAVED && VEC == 1;
constexpr int TABLE_VEC = VEC * sizeof(Table) <= 16 ? VEC : 16 / sizeof(Table);

// The cosines or sines of a unit.
struct Turn {
  Vector<Table, TABLE_VEC> raw[UNIT / TABLE_VEC];

  __device__ void load(const Table* from, int first, int second) {
#pragma unroll
    for (int i = 0; i < UNIT / TABLE_VEC; ++i) {
      const int past = i * TABLE_VEC;
      raw[i].load(from + (past < VEC ? first + past : second + past - VEC));
    }
  }
  __device__ float operator[](int i) const { return raw[i / TABLE_VEC][i % TABLE_VEC]; }
};

struct Strides {
  Index batch, head, token;
  __device__ Index at(Index b, Index h, Index t) const { return b * batch + h * head + t * token; }
};

template <bool BACK> __device__ void rotate(float (&x)[UNIT], const Turn& cos, const Turn& sin) {
#pragma unroll
  for (int j = 0; j < VEC; ++j) {
    const int a = INTERLEAVED ? 2 * j : j, b = INTERLEAVED ? 2 * j + 1 : VEC + j;
    const float first = x[a], second = x[b];
    x[a] = BACK ? first * cos[a] + second * sin[b] : first * cos[a] - second * sin[a];
    x[b] = BACK ? second * cos[b] - first * sin[a] : second * cos[b] + first * sin[b];
  }
}

template <bool BACK>
__device__ void run(const Scalar* q, const Scalar* k, const Table* cos, const Table* sin, Scalar* to_q, Scalar* to_k,
                    unsigned groups, unsigned tiles, unsigned batches, Index tokens, Index q_heads,
                    Index heads, const Strides& q_at, const Strides& k_at, const Strides& to_q_at, const Strides& to_k_at, Index table_batch,
                    Index table_token) {
  const int unit = threadIdx.x % UNITS, slot = threadIdx.x / UNITS % SLOTS;
  const unsigned inner = HEADS_FIRST ? groups : tiles, outer = HEADS_FIRST ? tiles : groups;
  const unsigned in = blockIdx.x % inner, out = blockIdx.x / inner % outer, rest = blockIdx.x / inner / outer;
  const Index b = rest % batches, tile = Index(rest / batches) * tiles + (HEADS_FIRST ? out : in);
  const Index first_head = Index(HEADS_FIRST ? in : out) * ITEMS * SLOTS + slot;
  const Index t = tile * TOKENS + threadIdx.x / (UNITS * SLOTS);
  if (t >= tokens) return;

  const bool turns = unit * UNIT < ROTATED;
  const int start = turns ? 0 : ROTATED, half = (turns ? ROTATED : WIDTH - ROTATED) / 2;
  const int first = start + (unit * UNIT - start) / (NEIGHBOURS ? 1 : 2), second = first + (NEIGHBOURS ? 1 : half);

  Chunk r_x[ITEMS][2];
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const Index head = first_head + i * SLOTS;
    if (head < heads) {
      const bool of_q = head < q_heads;
      const Scalar* x = of_q ? q + q_at.at(b, head, t) : k + k_at.at(b, head - q_heads, t);
      r_x[i][0].load(x + first);
      r_x[i][1].load(x + second);
    }
  }
  Turn r_cos, r_sin;
  if (turns) {
    const Index row = b * table_batch + t * table_token;
    r_cos.load(cos + row, first, second);
    r_sin.load(sin + row, first, second);
  }
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const Index head = first_head + i * SLOTS;
    if (head < heads) {
      const bool of_q = head < q_heads;
      Scalar* y = of_q ? to_q + to_q_at.at(b, head, t) : to_k + to_k_at.at(b, head - q_heads, t);
      if (turns) {
        float x[UNIT];
#pragma unroll
        for (int j = 0; j < UNIT; ++j) x[j] = r_x[i][j / VEC][j % VEC];
        rotate<BACK>(x, r_cos, r_sin);
        r_x[i][0].pack(reinterpret_cast<const float(&)[VEC]>(x[0]));
        r_x[i][1].pack(reinterpret_cast<const float(&)[VEC]>(x[VEC]));
      }
      r_x[i][0].store(y + first);
      r_x[i][1].store(y + second);
    }
  }
}

#define ROPE(NAME, BACK)                                                                                              \
  extern "C" __global__ void __launch_bounds__(UNITS* SLOTS* TOKENS)                                                  \
  NAME(const Scalar* q, const Scalar* k, const Table* cos, const Table* sin, Scalar* to_q, Scalar* to_k,              \
       Index groups, Index tiles, Index batches, Index tokens, Index q_heads, Index heads, Index q_b, Index q_h,      \
       Index q_t, Index k_b, Index k_h, Index k_t, Index to_q_b, Index to_q_h, Index to_q_t, Index to_k_b,            \
       Index to_k_h, Index to_k_t, Index table_batch, Index table_token) {                                            \
    run<BACK>(q, k, cos, sin, to_q, to_k, groups, tiles, batches, tokens, q_heads, heads, {q_b, q_h, q_t},            \
              {k_b, k_h, k_t}, {to_q_b, to_q_h, to_q_t}, {to_k_b, to_k_h, to_k_t}, table_batch, table_token);         \
  }
ROPE(rope_forward, false)
ROPE(rope_backward, true)
