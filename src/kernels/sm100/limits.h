// What an sm_100 or sm_103 SM offers.
#pragma once

namespace cake_moe::sm100 {

inline constexpr int kSmemOfCta = 227 * 1024;
inline constexpr int kTmemColumns = 512;

}  // namespace cake_moe::sm100
