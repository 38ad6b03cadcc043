// Messages between agent and keeper; every input goes through both directions. Encoding gives a whole frame.

#include "common/messages/keeper.hpp"

#include "common/messages/frame.hpp"
#include "test/fuzz/target.hpp"

namespace {

template <class Message>
std::string text_of(const Message& message) {
  return sgd::keeper::encode(message).substr(sgd::kFrameHeaderBytes);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = sgd::fuzz::text_of(data, size);
  // Of a frame there can be no more; what is printed again may be longer by its escapes and would not fit.
  if (size > sgd::kJsonFrameBytesMax / 8) return 0;
  const sgd::fuzz::MemoryBound bound(size, 512);
  sgd::fuzz::check_stable(text, sgd::keeper::decode_to_keeper, text_of<sgd::keeper::ToKeeper>);
  sgd::fuzz::check_stable(text, sgd::keeper::decode_from_keeper, text_of<sgd::keeper::FromKeeper>);
  return 0;
}
