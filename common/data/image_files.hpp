#pragma once
// Folders of images, looked at by names alone: which files there are, in which order, and what is missing. Images are
// .jpg, .jpeg and .png, in whatever case; what else has the name of an image is an error, since nobody would notice
// that it is left out. Other files, and names that begin with a dot, are left out. Links are followed.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/data/file_names.hpp"

namespace sgd::data {

/// A folder with one sub-folder for each class, whose images may lie deeper. Numbers are those of torchvision's
/// ImageFolder: classes by name, in each the folders by path and the files of a folder by name, byte by byte.
struct ImageFolder {
  std::vector<std::string> classes;
  FileNames files;
  std::vector<std::int64_t> ends;  ///< Images of class c end before number ends[c], and those of c + 1 begin there.
  /// Of an image's class.
  [[nodiscard]] std::int64_t label(std::int64_t index) const;
};
/// Errors name the folder, the classes without an image, or the file.
[[nodiscard]] Result<ImageFolder> list_image_folder(const std::string& folder);

/// How the classes of a validation folder differ from those to train on: "" when they do not.
[[nodiscard]] std::string class_difference(const std::vector<std::string>& train,
                                           const std::vector<std::string>& validation);

/// Images and their masks: two folders with the same paths but for the ending, a mask's being .png. In the order of the
/// images' paths.
struct MaskedImages {
  FileNames images;
  FileNames masks;
};
/// Errors name the file that has no partner, or two.
[[nodiscard]] Result<MaskedImages> list_masked_images(const std::string& images, const std::string& masks);

}  // namespace sgd::data
