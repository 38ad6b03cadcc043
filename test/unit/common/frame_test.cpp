#include <catch2/catch.hpp>

#include "common/messages/frame.hpp"

namespace sgd {

TEST_CASE("frame: cut from any pieces") {
  const std::string stream = encode_frame(FrameKind::kJson, "{}") + encode_frame(FrameKind::kChunk, "") +
                             encode_frame(FrameKind::kChunk, std::string("a\0b", 3));
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) {
    FrameReader reader;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.append(std::string_view(stream).substr(at, piece));
      for (;;) {
        auto frame = reader.next();
        REQUIRE(frame.ok());
        if (!frame.value()) break;
        frames.push_back(*frame.value());
      }
    }
    REQUIRE(frames.size() == 3);
    CHECK(frames[0].kind == FrameKind::kJson);
    CHECK(frames[0].bytes == "{}");
    CHECK(frames[1].kind == FrameKind::kChunk);
    CHECK(frames[1].bytes.empty());
    CHECK(frames[2].bytes == std::string("a\0b", 3));
  }
}

TEST_CASE("frame: layout") {
  CHECK(encode_frame(FrameKind::kJson, "{}") == std::string("\0\0\0\2\1{}", 7));
}

TEST_CASE("frame: a wrong length or kind is an error at the header") {
  struct Bad {
    std::string header;
    const char* error;
  };
  for (const Bad& bad : std::vector<Bad>{
           {std::string("\xff\xff\xff\xff\1", 5), "frame of 4294967295 bytes; kind 1 may have 1048576"},
           {std::string("\0\x10\0\1\1", 5), "frame of 1048577 bytes; kind 1 may have 1048576"},
           {std::string("\0\x40\0\1\2", 5), "frame of 4194305 bytes; kind 2 may have 4194304"},
           {std::string("\0\0\0\1\0", 5), "frame of unknown kind 0"},
           {std::string("\0\0\0\1\4", 5), "frame of unknown kind 4"},
       }) {
    FrameReader reader;
    reader.append(bad.header);
    const auto frame = reader.next();
    REQUIRE_FALSE(frame.ok());
    CHECK(frame.error().message == bad.error);
  }
}

TEST_CASE("frame: the largest ones pass") {
  FrameReader reader;
  reader.append(encode_frame(FrameKind::kChunk, std::string(kChunkFrameBytesMax, 'x')));
  reader.append(encode_frame(FrameKind::kJson, std::string(kJsonFrameBytesMax, 'y')));
  CHECK(reader.next().value()->bytes.size() == kChunkFrameBytesMax);
  CHECK(reader.next().value()->bytes.size() == kJsonFrameBytesMax);
  CHECK_FALSE(reader.next().value().has_value());
}

TEST_CASE("frame: a long message goes in parts, to those who take it") {
  const std::string text(kMessageBytesMax, 'z');
  std::string bytes;
  for (const std::string& frame : encode_message(text)) bytes += frame;
  FrameReader reader;
  reader.take_long_messages();
  reader.append(bytes.substr(0, bytes.size() / 2));
  CHECK_FALSE(reader.next().value().has_value());
  reader.append(bytes.substr(bytes.size() / 2));
  CHECK(reader.next().value()->bytes == text);
  CHECK_FALSE(reader.next().value().has_value());
  CHECK(encode_message(std::string(kJsonFrameBytesMax, 'y')).size() == 1);

  FrameReader strict;
  strict.append(bytes.substr(0, kFrameHeaderBytes));
  CHECK(strict.next().error().message == "frame of unknown kind 3");
}

TEST_CASE("frame: parts have a limit together, checked before the last one is here, and nothing comes between them") {
  const std::string part = encode_frame(FrameKind::kPart, std::string(kPartFrameBytesMax, 'x'));
  FrameReader reader;
  reader.take_long_messages();
  for (std::size_t bytes = 0; bytes < kMessageBytesMax; bytes += kPartFrameBytesMax) {
    reader.append(part);
    REQUIRE_FALSE(reader.next().value().has_value());
  }
  reader.append(encode_frame(FrameKind::kJson, "x").substr(0, kFrameHeaderBytes));
  CHECK(reader.next().error().message == "a message in parts of more than 8388608 bytes");
  FrameReader mixed;
  mixed.take_long_messages();
  mixed.append(part + encode_frame(FrameKind::kChunk, ""));
  CHECK(mixed.next().error().message == "a chunk between the parts of a message");
}

}  // namespace sgd
