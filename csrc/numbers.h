// bf16 and IEEE half precision, rounded to nearest even.
#pragma once
#include <cstdint>
#include <cstring>

namespace penstock {

inline float float_from_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float from_bf16_bits(std::uint16_t bits) { return float_from_bits(std::uint32_t{bits} << 16); }
inline std::uint16_t to_bf16_bits(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float from_half_bits(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16, rest = half & 0x7fffu;
  if (rest >= 0x7c00) return float_from_bits(sign | rest << 13 | 0x7f800000);
  return float_from_bits(sign | bits_of(float_from_bits(rest << 13) * 0x1p112f));  // subnormal halves are normal floats
}
inline std::uint16_t to_half_bits(float x) {
  std::uint32_t bits = bits_of(x);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;
  if (bits < 0x38800000)  // a subnormal half: adding 1/2 aligns its last bit with a float's
    return static_cast<std::uint16_t>(sign | (bits_of(float_from_bits(bits) + 0.5f) - 0x3f000000));
  bits += 0xc8000fff + (bits >> 13 & 1);
  return static_cast<std::uint16_t>(sign | bits >> 13);
}

}  // namespace penstock
