// The backward of the norms in one read of dy and x. CTAs stay and walk over rows with the same columns, so that
// dweight and dbias add up in registers; bulk copies bring the next rows into shared memory while the two sums of a
// row meet.
//
// THREADS threads in each of CLUSTER CTAs have a row, ITEMS vectors each. A team is what walks together: the threads
// of a row in a CTA, or a warp with several short rows; TEAMS of them make a CTA. A slot holds one step of a team, or
// one of CHUNKS parts of it; STAGES slots are on their way or in use. HELD: a row's elements stay in registers until
// its sums are known, which frees their slot early. PACKED: the rows of a step are one piece of memory. KEPT: the weights
// stay in registers. AHEAD: a row's statistics come by copies into shared memory, too. TOTAL_AHEAD: total, which goes
// straight to registers, is asked for a row before it is wanted, else when its row's turn comes.

#include "backward.cuh"
#include "cluster.cuh"
#include "pipeline.cuh"

constexpr int TEAM = THREADS < WARP ? WARP : THREADS;
constexpr int ROWS = TEAM / THREADS;
constexpr int LANES = THREADS < WARP ? THREADS : WARP;
constexpr int WARPS = TEAM / WARP;
constexpr int PARTS = WARPS * CLUSTER;
constexpr int DEEP = ITEMS / CHUNKS;
constexpr bool ALONE = PARTS == 1, IN_REGISTERS = HAS_WEIGHT && KEPT;
static_assert(ITEMS % CHUNKS == 0 && (CHUNKS == 1 || (!HELD && TEAMS == 1)) && (CLUSTER == 1 || TEAMS == 1) && (!AHEAD || (ROWS == 1 && TEAMS == 1)));

using DyChunk = Vector<Dy, VEC>;
// Whether rows end between the 16 bytes that copies are made of.
template <typename T> constexpr bool RAGGED = VEC * sizeof(T) % 16 != 0;

extern __shared__ uint4 s_memory[];

// One of the tensors that are read, from the first column of this CTA on: where its rows lie, here and in a slot.
template <typename T> struct Stream {
  const T* data;
  Index pitch;
  int within;  // bytes from the start of a slot

  // The elements of a slot from `row` and `column` of this CTA on.
  __device__ const T* from(Index row, int column) const { return data + row * pitch + column; }
  __device__ const T* in_slot(const char* slot, Index row, int column, int sub, int length, int room) const {
    // A step's rows lie side by side as in memory, or each has its own room.
    const T* start = from(PACKED ? row - sub : row, column);
    const int skipped = VEC * sizeof(T) == 16 && (PACKED || ROWS == 1)
                            ? 0
                            : static_cast<int>(reinterpret_cast<unsigned long long>(start) % 16);
    const int before = PACKED ? sub * length * int(sizeof(T)) : sub * room;
    return reinterpret_cast<const T*>(slot + within + before + skipped);
  }
};

__device__ inline void write_floats(float* to, const float (&values)[VEC]) {
  constexpr int WIDE = VEC < 4 ? VEC : 4;
#pragma unroll
  for (int first = 0; first < VEC; first += WIDE) {
    Vector<float, WIDE> piece;
    float some[WIDE];
#pragma unroll
    for (int j = 0; j < WIDE; ++j) some[j] = values[first + j];
    piece.pack(some);
    piece.store(to + first);
  }
}

extern "C" __global__ void __launch_bounds__(TEAM * TEAMS, RESIDENT)
rows_pipelined(const Dy* gdy, const Scalar* gx, const Scalar* gtotal, const Weight* gw, const float* gmean,
               const float* grstd, Scalar* gdx, float* gparts, Index rows, Index length, Index share, Index dy_pitch,
               Index x_pitch, Index total_pitch, Index dy_room, Index x_room, Index offset_bits) {
  __shared__ Barrier s_full[TEAMS][STAGES], s_met[TEAMS][2];
  __shared__ float2 s_parts[TEAMS][2][PARTS];
  __shared__ Stats s_stats[AHEAD ? WARPS : 1][4];

  const int lane = threadIdx.x % WARP, team = threadIdx.x / TEAM, warp = threadIdx.x % TEAM / WARP;
  const int thread = threadIdx.x % THREADS, sub = threadIdx.x % TEAM / THREADS;
  const unsigned rank = CLUSTER > 1 ? cluster_rank() : 0;
  const Index left = rank * share;
  const int width = static_cast<int>(length - left < share ? length - left : share);
  const float offset = __int_as_float(static_cast<int>(offset_bits)), inverse = 1.f / static_cast<float>(length);

  constexpr int ROOMS = PACKED ? 1 : ROWS;
  const int dy_bytes = static_cast<int>(dy_room) * ROOMS, x_bytes = static_cast<int>(x_room) * ROOMS;
  const int slot_bytes = dy_bytes + x_bytes;
  Weight* s_weight = reinterpret_cast<Weight*>(s_memory);
  char* s_rings = reinterpret_cast<char*>(s_memory) + (HAS_WEIGHT && !KEPT ? (share * sizeof(Weight) + 15) / 16 * 16 : 0);
  char* s_ring = s_rings + team * STAGES * slot_bytes;
  const Stream<Dy> dys = {gdy + left, dy_pitch, 0};
  const Stream<Scalar> xs = {gx + left, x_pitch, dy_bytes};

  // Step t of this team is rows unit(t) * ROWS and those after it.
  const Index own = Index(blockIdx.x / CLUSTER) * TEAMS + team, stride = Index(gridDim.x / CLUSTER) * TEAMS;
  const Index units = (rows + ROWS - 1) / ROWS;
  const unsigned steps = own < units ? static_cast<unsigned>((units - own + stride - 1) / stride) : 0;
  const auto row_of = [&](unsigned step) { return (own + step * stride) * ROWS; };

  // The copies of chunk q, by one thread of the team, or one for each row where they lie apart.
  const bool filling = PACKED ? threadIdx.x % TEAM == 0 : lane < ROWS;
  const auto fill = [&](unsigned q) {
    const unsigned step = q / CHUNKS, column = q % CHUNKS * DEEP * THREADS * VEC;
    if (!filling || step >= steps) return;
    Barrier& full = s_full[team][q % STAGES];
    char* slot = s_ring + q % STAGES * slot_bytes;
    const Index row = row_of(step) + (PACKED ? 0 : lane);
    int count = CHUNKS == 1 ? width : min(width - int(column), DEEP * THREADS * VEC);
    if (PACKED && ROWS > 1) count *= rows - row < ROWS ? int(rows - row) : ROWS;
    if (row >= rows) count = 0;
    Cover dy(dys.from(row, column), count), x(xs.from(row, column), count);
    const int place = PACKED ? 0 : lane;
    char* to = slot + place * static_cast<int>(dy_room);
    if (RAGGED<Dy>) dy.end_before(dys.from(rows - 1, width), to, dys.from(row, column), count);
    to = slot + xs.within + place * static_cast<int>(x_room);
    if (RAGGED<Scalar>) x.end_before(xs.from(rows - 1, width), to, xs.from(row, column), count);
    full.arrive_expecting(dy.bytes + x.bytes);
    dy.copy_bulk(slot + place * static_cast<int>(dy_room), full);
    x.copy_bulk(slot + xs.within + place * static_cast<int>(x_room), full);
  };

  if (threadIdx.x % TEAM == 0) {
#pragma unroll
    for (int stage = 0; stage < STAGES; ++stage) s_full[team][stage].start(PACKED ? 1 : ROWS);
    s_met[team][0].start(CLUSTER > 1 ? 1 : WARPS);
    s_met[team][1].start(CLUSTER > 1 ? 1 : WARPS);
    publish_barriers();
  }
  if (CLUSTER > 1) {
    cluster_announce();
    cluster_wait();
  }
  __syncthreads();
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) fill(stage);
  Vector<Weight, IN_REGISTERS ? VEC : 1> r_weight[IN_REGISTERS ? ITEMS : 1];
  if (IN_REGISTERS) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int at = (i * THREADS + thread) * VEC;
      if (at < width) r_weight[IN_REGISTERS ? i : 0].load(gw + left + at);
    }
  } else if (HAS_WEIGHT) {
    for (int column = threadIdx.x; column < width; column += TEAM * TEAMS) s_weight[column] = gw[left + column];
    __syncthreads();
  }

  float dw[ITEMS][VEC] = {}, db[ITEMS][VEC] = {};
  const auto stats_at = [&](Index row) {
    return row < rows ? Stats{CENTRED ? gmean[row] : 0.f, grstd[row]} : Stats{0.f, 0.f};
  };
  // Those of vector i, `column` being its first.
  const auto weight_at = [&](int i, int column, float (&w)[VEC]) {
    if (HAS_WEIGHT && !KEPT) read_elements(s_weight + column, w);
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
      if (IN_REGISTERS) w[j] = r_weight[IN_REGISTERS ? i : 0][IN_REGISTERS ? j : 0];
      w[j] = HAS_WEIGHT ? w[j] + offset : 1.f;
    }
  };
  // Each warp for itself, three steps before they are wanted.
  const auto ask_stats = [&](unsigned step) {
    const Index row = row_of(step);
    if (lane == 0 && row < rows) {
      Stats& to = s_stats[warp][step % 4];
      if (CENTRED) copy_async(&to.mean, gmean + row);
      copy_async(&to.rstd, grstd + row);
    }
    Chunk::commit_copies();
  };
  const auto asked_stats = [&](unsigned step) {
    Chunk::wait_copies<2>();
    __syncwarp();
    const Stats& stats = s_stats[warp][step % 4];
    return Stats{CENTRED ? stats.mean : 0.f, stats.rstd};
  };

  // Through shared memory like x and dy, total would cost 2 to 8 % of the bandwidth.
  Chunk r_total[HAS_TOTAL ? ITEMS : 1];
  const auto ask_total = [&](unsigned step, int i) {
    const Index row = row_of(step) + sub;
    const int at = (i * THREADS + thread) * VEC;
    if (HAS_TOTAL && row < rows && at < width) r_total[HAS_TOTAL ? i : 0].load(gtotal + row * total_pitch + left + at);
  };
#pragma unroll
  for (int i = 0; TOTAL_AHEAD && i < ITEMS; ++i) ask_total(0, i);

  Stats next = {0.f, 0.f};
  if (AHEAD) {
    for (unsigned step = 0; step < 3; ++step) ask_stats(step);
  } else {
    next = stats_at(row_of(0) + sub);
  }
  for (unsigned step = 0; step < steps; ++step) {
    const Index row = row_of(step) + sub;
    const Stats stats = AHEAD ? asked_stats(step) : next;
    if (AHEAD) {
      ask_stats(step + 3);
    } else {
      next = stats_at(row_of(step + 1) + sub);
    }
    const int reach = row < rows ? width : 0;

    Chunk r_x[ITEMS];
    DyChunk r_dy[ITEMS];
    float2 sums = {0.f, 0.f};
#pragma unroll
    for (int i = 0; !TOTAL_AHEAD && i < ITEMS; ++i) ask_total(step, i);
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const unsigned q = step * CHUNKS + chunk;
      const char* slot = s_ring + q % STAGES * slot_bytes;
      const int start = chunk * DEEP * THREADS * VEC;
      const Dy* s_dy = dys.in_slot(slot, row, start, sub, width, dy_room);
      const Scalar* s_x = xs.in_slot(slot, row, start, sub, width, x_room);
      s_full[team][q % STAGES].wait(q / STAGES % 2);
#pragma unroll
      for (int d = 0; d < DEEP; ++d) {
        const int i = chunk * DEEP + d, at = (d * THREADS + thread) * VEC;
        if (start + at < reach) {
          r_x[i].load(s_x + at);
          r_dy[i].load(s_dy + at);
          float w[VEC];
          weight_at(i, start + at, w);
#pragma unroll
          for (int j = 0; j < VEC; ++j) {
            const float dy = r_dy[i][j], x_hat = normalised(r_x[i][j], stats), g = weighted(dy, w[j]);
            sums.x += g;
            sums.y += g * x_hat;
            dw[i][j] += dy * as_multiplied(x_hat);
            db[i][j] += dy;
          }
        }
      }
    }

    sums = {sum_over<LANES>(sums.x), sum_over<LANES>(sums.y)};
    if (ALONE) {
      __syncwarp();
      if (HELD) fill(step + STAGES);
    } else {
      // Every warp gives its part to all CTAs of the row. Two places take turns: when a warp writes to one again, all
      // have given the part after it, and so have read this one.
      float2* parts = s_parts[team][step % 2];
      Barrier& met = s_met[team][step % 2];
#if CLUSTER > 1
      if (threadIdx.x == 0) met.arrive_expecting(PARTS * sizeof(float2));
      if (lane < CLUSTER) send_to_peer(parts + rank * WARPS + warp, &met, lane, sums);
#else
      if (lane == 0) {
        parts[warp] = sums;
        met.arrive();
      }
#endif
      met.wait(step / 2 % 2);
      constexpr int SPREAD = PARTS < WARP ? PARTS : WARP;
      sums = {0.f, 0.f};
#pragma unroll
      for (int part = 0; part < PARTS; part += SPREAD) {
        const float2 more = parts[part + lane % SPREAD];
        sums = {sums.x + more.x, sums.y + more.y};
      }
      sums = {sum_over<SPREAD>(sums.x), sum_over<SPREAD>(sums.y)};
      // All parts are here, so all warps of this CTA have read this row, and are done with the row before it.
      if (CHUNKS == 1 && HELD) fill(step + STAGES);
      if (CHUNKS == 1 && !HELD && step > 0) fill(step - 1 + STAGES);
    }

    const Means means = {sums.x * inverse, sums.y * inverse};
    Scalar* to = gdx + row * length + left;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const unsigned q = step * CHUNKS + chunk;
      const char* slot = s_ring + q % STAGES * slot_bytes;
      const int start = chunk * DEEP * THREADS * VEC;
      const Dy* s_dy = dys.in_slot(slot, row, start, sub, width, dy_room);
      const Scalar* s_x = xs.in_slot(slot, row, start, sub, width, x_room);
#pragma unroll
      for (int d = 0; d < DEEP; ++d) {
        const int i = chunk * DEEP + d, at = (d * THREADS + thread) * VEC;
        if (start + at < reach) {
          if (!HELD) {
            r_x[i].load(s_x + at);
            r_dy[i].load(s_dy + at);
          }
          float w[VEC], dx[VEC];
          weight_at(i, start + at, w);
#pragma unroll
          for (int j = 0; j < VEC; ++j) {
            const float x_hat = normalised(r_x[i][j], stats);
            dx[j] = input_gradient(weighted(r_dy[i][j], w[j]), x_hat, stats, means);
            if (HAS_TOTAL) dx[j] += r_total[HAS_TOTAL ? i : 0][j];
          }
          if (TOTAL_AHEAD) ask_total(step + 1, i);
          Chunk result;
          result.pack(dx);
          // 0 to 1 % more with total, 0.6 less to 1.0 more without.
          HAS_TOTAL ? result.store_streaming(to + start + at) : result.store(to + start + at);
        }
      }
      if (CHUNKS > 1) {
        __syncthreads();
        fill(q + STAGES);
      }
    }
    if (ALONE && !HELD) {
      __syncwarp();
      fill(step + STAGES);
    }
  }
  let_next_start();
  if (PLANES == 0) return;

  // The rows of a warp add up by shuffles, teams through the shared memory of their rings.
  const Index parts = gridDim.x / CLUSTER;
  gparts += blockIdx.x / CLUSTER * length + left;
  const auto leave = [&](float (&sums)[ITEMS][VEC], float* to) {
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
#pragma unroll
      for (int j = 0; j < VEC; ++j) sums[i][j] = sum_over<ROWS, THREADS>(sums[i][j]);
    }
    float* s_sums = reinterpret_cast<float*>(s_rings) + team * share;
    if (TEAMS > 1) __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int at = (i * THREADS + thread) * VEC;
      if (at < width && sub == 0) write_floats((TEAMS > 1 ? s_sums : to) + at, sums[i]);
    }
    if (TEAMS == 1) return;
    __syncthreads();
    for (int column = threadIdx.x; column < width; column += TEAM * TEAMS) {
      float sum = 0.f;
#pragma unroll
      for (int t = 0; t < TEAMS; ++t) sum += reinterpret_cast<float*>(s_rings)[t * share + column];
      to[column] = sum;
    }
  };
  if (HAS_WEIGHT) leave(dw, gparts);
  if (HAS_BIAS) leave(db, gparts + HAS_WEIGHT * parts * length);
}
