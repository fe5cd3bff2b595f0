// Token tiles that the expert kernels are instantiated for.
#pragma once

#include <utility>

namespace cake_moe::sm90 {

using TokenTiles = std::integer_sequence<int, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128>;

// Calls body.template operator()<kTokens>() for every token tile until one returns an error text.
template <typename Body>
const char* for_each_tile(const Body& body) {
  const char* error = nullptr;
  const auto all = [&]<int... kTokens>(std::integer_sequence<int, kTokens...>) {
    ((error = error == nullptr ? body.template operator()<kTokens>() : error), ...);
  };
  all(TokenTiles{});
  return error;
}

// Calls body for the instance of this token tile.
template <typename Body>
const char* for_tile(int tile_tokens, const Body& body) {
  bool found = false;
  const char* error = for_each_tile([&]<int kTokens>() -> const char* {
    if (kTokens != tile_tokens) return nullptr;
    found = true;
    return body.template operator()<kTokens>();
  });
  return found ? error : "sm_90a: the plan asks for a token tile that has no instance";
}

}  // namespace cake_moe::sm90
