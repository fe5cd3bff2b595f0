// Kernel instances by token tile.
#pragma once

#include <utility>

namespace cake_moe {

template <int... kTokens>
using TokenTileList = std::integer_sequence<int, kTokens...>;

// Calls body.template operator()<kTokens>() for every token tile of the list until one returns an error text.
template <int... kTokens, typename Body>
const char* for_each_tile(TokenTileList<kTokens...>, const Body& body) {
  const char* error = nullptr;
  ((error = error == nullptr ? body.template operator()<kTokens>() : error), ...);
  return error;
}

// Calls body for the instance of this token tile.
template <typename TokenTiles, typename Body>
const char* for_tile(TokenTiles tiles, int tile_tokens, const Body& body) {
  bool found = false;
  const char* error = for_each_tile(tiles, [&]<int kTokens>() -> const char* {
    if (kTokens != tile_tokens) return nullptr;
    found = true;
    return body.template operator()<kTokens>();
  });
  return found ? error : "the plan asks for a token tile that has no instance";
}

}  // namespace cake_moe
