#pragma once
// Keys of RankError, for the protocols that carry it.

#include "common/messages/codec.hpp"
#include "common/messages/rank_error.hpp"

namespace sgd::codec {

template <>
inline constexpr auto kMessage<RankError> = message("", optional("type", &RankError::type),
                                                    optional("message", &RankError::message),
                                                    optional("frames", &RankError::frames),
                                                    optional("at_s", &RankError::at_s),
                                                    optional("is_aside", &RankError::is_aside));
template <>
inline constexpr auto kMessage<OtherError> = message("", required("rank", &OtherError::rank),
                                                     optional("error", &OtherError::error),
                                                     optional("gpu", &OtherError::gpu));

}  // namespace sgd::codec
