// The curves of gated linear units in fp32: each gives its value and its slope, and a kernel that needs only one of
// them pays only for that one.
#pragma once

__device__ inline float exp2_fast(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}
__device__ inline float reciprocal(float value) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}

constexpr float LOG2_E = 1.4426950408889634f;

struct Curve { float value, slope; };

// x sigmoid(x).
struct Silu {
  static __device__ Curve at(float x) {
    const float s = reciprocal(1.f + exp2_fast(-LOG2_E * x));
    return {x * s, s * (1.f + x * (1.f - s))};
  }
};

// x Phi(x), the normal distribution's, as its tail Phi(-|x|) = exp(-x^2 / 2) t P(t) with t = 1 / (1 + 0.34 |x|): one
// range, no branch, and the slope Phi(x) + x phi(x) shares the exponential. P is a minimax fit of the relative error,
// 3e-8 for |x| up to 14; 1 + erf(x / sqrt(2)) would cancel for negative x, where this keeps its digits.
struct Gelu {
  static __device__ Curve at(float x) {
    const float t = reciprocal(1.f + 0.34f * fabsf(x));
    float p = -0.02612047642469406f;
    p = p * t + 0.1394995003938675f;
    p = p * t - 0.2731327712535858f;
    p = p * t + 0.20218269526958466f;
    p = p * t - 0.044718462973833084f;
    p = p * t + 0.11535916477441788f;
    p = p * t + 0.11519766f;
    p = p * t + 0.13611219823360443f;
    p = p * t + 0.13562050461769104f;
    const float bell = exp2_fast(-0.5f * LOG2_E * x * x), tail = bell * t * p;
    const float phi = x < 0.f ? tail : 1.f - tail;
    return {x * phi, phi + 0.3989422804014327f * x * bell};
  }
};

// x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x sigmoid(2 u), which is the same and keeps
// its digits for negative x.
struct GeluTanh {
  static __device__ Curve at(float x) {
    constexpr float TWICE = 1.5957691216057308f, CUBIC = 0.044715f;
    const float square = x * x;
    const float s = reciprocal(1.f + exp2_fast(-LOG2_E * TWICE * x * (1.f + CUBIC * square)));
    return {x * s, s * (1.f + x * (1.f - s) * TWICE * (1.f + 3.f * CUBIC * square))};
  }
};
