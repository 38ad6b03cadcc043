#include "worker/data/token_dataset.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/data/file_list.hpp"
#include "common/data/tokens.hpp"
#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are read as they lie in the file");

SGD_CLONES std::uint32_t largest(const std::uint8_t* tokens, std::size_t count) {
  std::uint8_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, tokens[i]);
  return most;
}

SGD_CLONES std::uint32_t largest(const std::uint16_t* tokens, std::size_t count) {
  std::uint16_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, tokens[i]);
  return most;
}

SGD_CLONES std::uint32_t largest(const std::uint32_t* tokens, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, tokens[i]);
  return most;
}

/// A mapping begins at a page, so its tokens are aligned.
template <class Token>
std::span<const Token> tokens_of(const MappedFile& file) {
  return {reinterpret_cast<const Token*>(file.bytes().data()), file.bytes().size() / sizeof(Token)};
}

template <class Token>
Status check_tokens(const std::string& path, const MappedFile& file, std::int64_t vocabulary) {
  constexpr std::size_t at_once = std::size_t{1} << 22;
  const std::span<const Token> tokens = tokens_of<Token>(file);
  for (std::size_t begin = 0; begin < tokens.size(); begin += at_once) {
    const std::span<const Token> part = tokens.subspan(begin, std::min(at_once, tokens.size() - begin));
    if (largest(part.data(), part.size()) >= vocabulary) {
      const auto bad = std::find_if(part.begin(), part.end(), [&](Token token) { return token >= vocabulary; });
      return Error{
          fmt::format("data file {}: token {} at place {} (the first is 0) is outside 0..{}, what the model "
                      "gives outputs for",
                      path, *bad, begin + static_cast<std::size_t>(bad - part.begin()), vocabulary - 1)};
    }
    file.forget(begin * sizeof(Token), (begin + part.size()) * sizeof(Token));
  }
  return {};
}

template <class Token>
void copy_window(const MappedFile& file, std::int64_t window, std::int64_t length, std::int64_t* features,
                 std::int64_t* target) {
  const Token* from = tokens_of<Token>(file).data() + window * length;
  for (std::int64_t i = 0; i < length; ++i) {
    features[i] = from[i];
    target[i] = from[i + 1];
  }
}

}  // namespace

Result<TokenDataset> TokenDataset::open(const std::vector<std::string>& files, std::int64_t width, std::int64_t length,
                                        std::int64_t vocabulary) {
  SGD_ASSERT(width == 1 || width == 2 || width == 4);
  TokenDataset dataset;
  dataset.width_ = width;
  dataset.length_ = length;
  for (const std::string& path : files) {
    const Result<std::int64_t> windows = data::inspect_tokens(path, width, length);
    if (!windows) return windows.error();
    Result<MappedFile> mapped = MappedFile::open(path);
    if (!mapped) return mapped.error();
    const auto bytes = static_cast<std::int64_t>(mapped.value().bytes().size());
    if ((bytes / width - 1) / length != windows.value()) {  // It was so when its size was checked.
      return Error{fmt::format("data file {} has changed while it was opened", path)};
    }
    const Status tokens = width == 1   ? check_tokens<std::uint8_t>(path, mapped.value(), vocabulary)
                          : width == 2 ? check_tokens<std::uint16_t>(path, mapped.value(), vocabulary)
                                       : check_tokens<std::uint32_t>(path, mapped.value(), vocabulary);
    if (!tokens) return tokens.error();
    dataset.files_.push_back({std::move(mapped).value(), dataset.count_});
    dataset.count_ += windows.value();
  }
  const Status count = data::check_sample_count("the data set", dataset.count_);
  if (!count) return count.error();
  return dataset;
}

void TokenDataset::gather(std::span<const std::int64_t> windows, std::int64_t* features, std::int64_t* target) const {
  for (const std::int64_t window : windows) {
    SGD_ASSERT(window >= 0 && window < count_);
    const auto behind = std::upper_bound(files_.begin(), files_.end(), window,
                                         [](std::int64_t number, const File& file) { return number < file.first; });
    const File& file = *(behind - 1);
    if (width_ == 1)
      copy_window<std::uint8_t>(file.bytes, window - file.first, length_, features, target);
    else if (width_ == 2)
      copy_window<std::uint16_t>(file.bytes, window - file.first, length_, features, target);
    else
      copy_window<std::uint32_t>(file.bytes, window - file.first, length_, features, target);
    features += length_;
    target += length_;
  }
}

}  // namespace sgd::worker
