#include "common/data/image_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/data/file_list.hpp"

namespace sgd::data {
namespace fs = std::filesystem;
namespace {

constexpr std::array<std::string_view, 3> kDecodedEndings = {".jpeg", ".jpg", ".png"};
constexpr std::array<std::string_view, 11> kOtherEndings = {".avif", ".bmp", ".gif", ".heic", ".jp2", ".pgm",
                                                            ".ppm",  ".tga", ".tif", ".tiff", ".webp"};

/// ".jpg" of "A.JPG".
std::string ending_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  std::string ending(dot == std::string_view::npos ? std::string_view() : name.substr(dot));
  for (char& letter : ending) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return ending;
}

template <class Endings>
bool has_ending(const Endings& endings, const std::string& ending) {
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

/// The images of one folder, sorted.
struct FolderImages {
  std::string path;
  std::vector<std::string> names;
};

/// Collects the images at and below a folder.
class ImageWalk {
 public:
  /// Sorted by path.
  static Result<std::vector<FolderImages>> run(const std::string& folder) {
    ImageWalk walk;
    const Status walked = walk.enter(folder);
    if (!walked) return walked.error();
    std::sort(walk.found_.begin(), walk.found_.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return std::move(walk.found_);
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;

  Status enter(const std::string& folder) {
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0) return system_error("data folder " + folder);
    if (!S_ISDIR(info.st_mode)) return Error{fmt::format("data folder {} is not a folder", folder)};
    const Identity identity{info.st_dev, info.st_ino};
    if (std::find(above_.begin(), above_.end(), identity) != above_.end())
      return Error{fmt::format("data folder {} is a link that leads back to a folder above it", folder)};
    above_.push_back(identity);
    const Status read = read_folder(folder);
    above_.pop_back();
    return read;
  }

  Status read_folder(const std::string& folder) {
    std::error_code error;
    FolderImages here{folder, {}};
    std::vector<std::string> below;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.empty() || name.front() == '.') continue;
      std::error_code ignored;  // What cannot be looked at is none of the two.
      if (entry->is_directory(ignored)) {
        below.push_back(entry->path().string());
        continue;
      }
      const std::string ending = ending_of(name);
      if (has_ending(kOtherEndings, ending))
        return Error{
            fmt::format("data file {}: images of type {} are not decoded: convert it to JPEG or PNG, or move it "
                        "elsewhere",
                        entry->path().string(), ending)};
      if (!has_ending(kDecodedEndings, ending)) continue;
      if (!entry->is_regular_file(ignored))
        return Error{fmt::format("data file {} is not a regular file", entry->path().string())};
      here.names.push_back(name);
    }
    if (error) return Error{fmt::format("data folder {}: {}", folder, error.message()), error.value()};
    std::sort(here.names.begin(), here.names.end());
    if (!here.names.empty()) found_.push_back(std::move(here));
    for (const std::string& path : below) {
      const Status entered = enter(path);
      if (!entered) return entered;
    }
    return {};
  }

  std::vector<FolderImages> found_;
  std::vector<Identity> above_;
};

/// The first few of a list that may be long.
std::string in_short(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 5;
  const std::size_t count = std::min(names.size(), shown);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  if (names.size() > count) text += fmt::format(" and {} more", names.size() - count);
  return text;
}

Result<std::vector<std::string>> class_names(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (name.front() != '.' && entry->is_directory(ignored)) names.push_back(name);
  }
  if (error) return Error{fmt::format("data folder {}: {}", folder, error.message()), error.value()};
  if (names.empty()) return Error{fmt::format("data folder {} has no sub-folder, expected one for each class", folder)};
  std::sort(names.begin(), names.end());
  return names;
}

/// A file by the part of its path that its partner has, too: "/a/b" of "/data/images/a/b.jpg" in "/data/images".
struct Partner {
  std::string key;
  std::string folder;
  std::string name;
};

Result<std::vector<Partner>> partners_in(const std::string& folder, bool are_masks) {
  const Result<std::vector<FolderImages>> found = ImageWalk::run(folder);
  if (!found) return found.error();
  std::vector<Partner> partners;
  for (const FolderImages& inside : found.value()) {
    const std::string front = inside.path.substr(folder.size());
    for (const std::string& name : inside.names) {
      if (are_masks && ending_of(name) != ".png")
        return Error{
            fmt::format("data file {}/{}: expected a PNG file, whose pixels keep their values", inside.path, name)};
      partners.push_back({fmt::format("{}/{}", front, name.substr(0, name.rfind('.'))), inside.path, name});
    }
  }
  if (partners.empty()) return Error{fmt::format("data folder {} has no image (.jpg, .jpeg or .png)", folder)};
  std::stable_sort(partners.begin(), partners.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  const auto twice =
      std::adjacent_find(partners.begin(), partners.end(), [](const auto& a, const auto& b) { return a.key == b.key; });
  if (twice != partners.end())
    return Error{fmt::format("data files {0}/{1} and {0}/{2} differ in their ending alone: one of them is too much",
                             twice->folder, twice->name, (twice + 1)->name)};
  return partners;
}

void add_partner(FileNames& files, const std::vector<Partner>& partners, std::size_t at) {
  if (at == 0 || partners[at].folder != partners[at - 1].folder) files.enter(partners[at].folder);
  files.add(partners[at].name);
}

}  // namespace

std::int64_t ImageFolder::label(std::int64_t index) const {
  return std::upper_bound(ends.begin(), ends.end(), index) - ends.begin();
}

Result<ImageFolder> list_image_folder(const std::string& folder) {
  const Result<std::vector<std::string>> classes = class_names(folder);
  if (!classes) return classes.error();
  ImageFolder out;
  std::vector<std::string> empty;
  for (const std::string& name : classes.value()) {
    const Result<std::vector<FolderImages>> found = ImageWalk::run(folder + "/" + name);
    if (!found) return found.error();
    if (found.value().empty()) empty.push_back(name);
    for (const FolderImages& inside : found.value()) {
      out.files.enter(inside.path);
      for (const std::string& image : inside.names) out.files.add(image);
    }
    out.ends.push_back(out.files.count());
  }
  if (!empty.empty())
    return Error{fmt::format("data folder {}: no image (.jpg, .jpeg or .png) in the sub-folder{} {}", folder,
                             empty.size() == 1 ? "" : "s", in_short(empty))};
  const Status count = check_sample_count("data folder " + folder, out.files.count());
  if (!count) return count.error();
  out.classes = classes.value();
  return out;
}

std::string class_difference(const std::vector<std::string>& train, const std::vector<std::string>& validation) {
  const auto only_in = [](const std::vector<std::string>& one, const std::vector<std::string>& other) {
    std::vector<std::string> names;
    std::set_difference(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(names));
    return names;
  };
  const std::vector<std::string> missing = only_in(train, validation);
  const std::vector<std::string> more = only_in(validation, train);
  std::string text;
  if (!missing.empty()) text = fmt::format("the folder to validate on lacks {}", in_short(missing));
  if (!more.empty()) {
    text += text.empty() ? "the folder to validate on" : ", and";
    text += fmt::format(" has {}, which is not trained on", in_short(more));
  }
  return text.empty() ? text : "the classes of the two folders differ: " + text;
}

Result<MaskedImages> list_masked_images(const std::string& images, const std::string& masks) {
  const Result<std::vector<Partner>> first = partners_in(images, false);
  if (!first) return first.error();
  const Result<std::vector<Partner>> second = partners_in(masks, true);
  if (!second) return second.error();
  MaskedImages out;
  for (std::size_t i = 0; i < std::max(first.value().size(), second.value().size()); ++i) {
    const Partner* image = i < first.value().size() ? &first.value()[i] : nullptr;
    const Partner* mask = i < second.value().size() ? &second.value()[i] : nullptr;
    if (mask == nullptr || (image != nullptr && image->key < mask->key))
      return Error{
          fmt::format("data file {}/{} has no mask: expected {}{}.png", image->folder, image->name, masks, image->key)};
    if (image == nullptr || mask->key < image->key)
      return Error{fmt::format("data file {}/{} is the mask of no image: expected {}{} with .jpg, .jpeg or .png",
                               mask->folder, mask->name, images, mask->key)};
    add_partner(out.images, first.value(), i);
    add_partner(out.masks, second.value(), i);
  }
  const Status count = check_sample_count("data folder " + images, out.images.count());
  if (!count) return count.error();
  return out;
}

}  // namespace sgd::data
