#pragma once
// The JSON library, for every file that needs it. Its two value types are templates that a compiler makes anew for each
// file, a quarter of all the code it writes; here they are declared to be made once, in nlohmann.cpp.

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;                       // nlohmann::json
extern template class nlohmann::basic_json<nlohmann::ordered_map>;  // nlohmann::ordered_json
