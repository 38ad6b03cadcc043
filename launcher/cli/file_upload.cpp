#include "launcher/cli/file_upload.hpp"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/storage/beneath.hpp"

namespace sgd::cli {
namespace {

constexpr std::int64_t kPieceBytes = 1 << 20;

}  // namespace

FileUpload::FileUpload(boost::asio::io_context& io, shipping::FoundFiles files, Handlers handlers, Duration rest)
    : files_(std::move(files)), handlers_(std::move(handlers)), again_(io), rest_(rest) {
  for (const shipping::ShippedFile& file : files_.set.files) sizes_[file.sha256] = file.bytes;
  sizes_[files_.sha256] = static_cast<std::int64_t>(files_.text.size());
}

void FileUpload::begin() {
  if (is_over_) return;
  again_.cancel();
  is_done_ = false;
  missing_.clear();
  unanswered_.clear();
  next_ = whole_ = 0;
  Json wanted = Json::array();
  for (const auto& [sha256, bytes] : sizes_) wanted.push_back({{"sha256", sha256}, {"bytes", bytes}});
  asked_ = number_++;
  handlers_.send({{"type", "request"}, {"id", *asked_}, {"request", "files"}, {"files", std::move(wanted)}}, {});
}

void FileUpload::begin_later(const Json& answer) {
  asked_.reset();
  unanswered_.clear();
  if (++busy_ >= kBusyMax)
    return fail(fmt::format("the coordinator has taken no file for {} questions in a row: {}", kBusyMax,
                            read_or(answer, "error", "it is busy")),
                false);
  again_.after(rest_, [this] { begin(); });
}

bool FileUpload::on(const Json& message) {
  if (read_or(message, "type", "") != "answer") return false;
  const int id = read_or(message, "id", 0);
  if (id < kFirstNumber) return false;
  if (asked_ == id) {
    asked_.reset();
    on_missing(message);
  } else if (const auto sent = unanswered_.extract(id); !sent.empty()) {
    on_put(sent.mapped(), message);
  }
  return true;
}

void FileUpload::on_missing(const Json& answer) {
  if (!read_or(answer, "ok", false)) {
    if (read_or(answer, "kind", "") == "busy") return begin_later(answer);
    return fail(read_or(answer, "error", "the coordinator takes no files"), read_or(answer, "kind", "") == "quota");
  }
  for (const Json& file : member(answer, "missing")) {
    Missing missing;
    missing.sha256 = read_or(file, "sha256", "");
    const auto size = sizes_.find(missing.sha256);
    if (size == sizes_.end()) continue;
    missing.bytes = size->second;
    // The last piece is sent in any case: with it comes the proof.
    missing.sent = missing.had = std::clamp<std::int64_t>(read_or(file, "have", std::int64_t{0}), 0, missing.bytes);
    missing_.push_back(std::move(missing));
  }
  send_more();
}

void FileUpload::send_more() {
  while (!is_over_ && next_ < missing_.size() && unanswered_.size() < kAhead)
    if (!send_piece(next_)) return;
  if (is_over_ || is_done_ || whole_ < missing_.size()) return;
  is_done_ = true;
  handlers_.on_done(put_files_, put_bytes_);
}

bool FileUpload::send_piece(std::size_t index) {
  Missing& file = missing_[index];
  const std::int64_t bytes = std::min(kPieceBytes, file.bytes - file.sent);
  const auto piece = read(file, static_cast<std::size_t>(bytes));
  if (!piece || static_cast<std::int64_t>(piece.value().size()) != bytes) {
    const auto source = files_.sources.find(file.sha256);
    fail(piece ? fmt::format("{} is shorter than it was: submit again", source->second) : piece.error().message, true);
    return false;
  }
  const int id = number_++;
  const bool is_last = file.sent + bytes == file.bytes;
  unanswered_[id] = {index, is_last};
  handlers_.send({{"type", "put"},
                  {"id", id},
                  {"sha256", file.sha256},
                  {"offset", file.sent},
                  {"bytes", bytes},
                  {"last", is_last}},
                 piece.value());
  file.sent += bytes;
  if (is_last) ++next_;
  return true;
}

void FileUpload::on_put(const Sent& sent, const Json& answer) {
  const Missing& file = missing_.at(sent.file);
  if (read_or(answer, "ok", false)) {
    busy_ = 0;
    if (sent.is_last) {
      ++whole_;
      ++put_files_;
      put_bytes_ += file.bytes - file.had;
    }
    return send_more();
  }
  const std::string kind = read_or(answer, "kind", "");
  // What is on its way now is answered to nobody.
  if (kind == "busy" || kind == "gap") return begin_later(answer);
  if (kind == "files" && ++damaged_ < kDamagedMax) return begin_later(answer);
  const auto source = files_.sources.find(file.sha256);
  if (kind == "files" && source != files_.sources.end())
    return fail(source->second + " was changed while it was sent: submit again", true);
  fail(read_or(answer, "error", "the coordinator takes no files"), kind == "quota");
}

Result<std::string> FileUpload::read(const Missing& file, std::size_t bytes) const {
  const auto offset = static_cast<std::size_t>(file.sent);
  if (file.sha256 == files_.sha256) return files_.text.substr(offset, bytes);
  const std::string& path = files_.sources.at(file.sha256);
  storage::Descriptor fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) return system_error("cannot open " + path);
  return storage::OpenFile(std::move(fd), path).read_at(offset, bytes);
}

void FileUpload::fail(const std::string& error, bool is_users) {
  is_over_ = true;
  again_.cancel();
  handlers_.on_failed(error, is_users);
}

}  // namespace sgd::cli
