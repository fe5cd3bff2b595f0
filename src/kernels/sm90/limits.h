// What an sm_90 SM offers.
#pragma once

namespace cake_moe::sm90 {

inline constexpr int kSmemOfSm = 228 * 1024;
inline constexpr int kSmemReserved = 1024;  // taken by the system from every CTA
inline constexpr int kSmemOfCta = 227 * 1024;

constexpr int max_smem_bytes(int ctas_per_sm) {
  const int share = kSmemOfSm / ctas_per_sm - kSmemReserved;
  return share < kSmemOfCta ? share : kSmemOfCta;
}

}  // namespace cake_moe::sm90
