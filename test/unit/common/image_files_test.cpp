// Folders of images by their names: the order of samples, their classes and partners, and what is missing.

#include "common/data/image_files.hpp"

#include <catch2/catch.hpp>

#include <filesystem>

#include "temporary_folder.hpp"

namespace sgd::data {
namespace {

namespace fs = std::filesystem;

void touch_file(const test::TemporaryFolder& folder, const std::string& name) {
  folder.write(name, "x");
}

std::vector<std::string> paths_of(const FileNames& files, const std::string& folder) {
  std::vector<std::string> paths;
  for (std::int64_t i = 0; i < files.count(); ++i) paths.push_back(files.path(i).substr(folder.size() + 1));
  return paths;
}

/// What is said, without the folder's name.
std::string words_of(const Error& error, const test::TemporaryFolder& folder) {
  std::string words = error.message;
  for (std::size_t at; (at = words.find(folder.path())) != std::string::npos;) words.erase(at, folder.path().size());
  return words;
}

std::string folder_refusal(const test::TemporaryFolder& folder, const std::string& name = "data") {
  const auto listed = list_image_folder(folder.path(name));
  return listed.ok() ? "" : words_of(listed.error(), folder);
}

std::string mask_refusal(const test::TemporaryFolder& folder) {
  const auto listed = list_masked_images(folder.path("images"), folder.path("masks"));
  return listed.ok() ? "" : words_of(listed.error(), folder);
}

}  // namespace

TEST_CASE("image folders: classes and files have the order of their names") {
  const test::TemporaryFolder folder;
  for (const char* name : {"data/dog/b.png", "data/dog/B.JPG", "data/dog/a/z.jpeg", "data/dog/a-1/y.jpg",
                           "data/cat/1.jpg", "data/cat/10.jpg", "data/cat/2.jpg", "data/README.txt",
                           "data/dog/notes.txt", "data/dog/.hidden.jpg", "data/.git/x.jpg"})
    touch_file(folder, name);
  const Result<ImageFolder> listed = list_image_folder(folder.path("data"));
  REQUIRE(listed.ok());
  CHECK(listed.value().classes == std::vector<std::string>{"cat", "dog"});
  // As sorted(os.walk()): by the folder's path, in it by name.
  CHECK(paths_of(listed.value().files, folder.path("data")) ==
        std::vector<std::string>{"cat/1.jpg", "cat/10.jpg", "cat/2.jpg", "dog/B.JPG", "dog/b.png", "dog/a/z.jpeg",
                                 "dog/a-1/y.jpg"});
}

TEST_CASE("image folders: what is missing is named") {
  const test::TemporaryFolder folder;
  CHECK_THAT(folder_refusal(folder), Catch::Contains("data folder /data: No such file"));
  folder.write("file", "x");
  CHECK_THAT(folder_refusal(folder, "file"), Catch::Contains("data folder /file: Not a directory"));
  fs::create_directories(folder.path("data"));
  CHECK(folder_refusal(folder) == "data folder /data has no sub-folder, expected one for each class");
  touch_file(folder, "data/a/1.png");
  fs::create_directories(folder.path("data/b"));
  CHECK(folder_refusal(folder) == "data folder /data: no image (.jpg, .jpeg or .png) in the sub-folder b");
  for (const char* name : {"c", "d", "e", "f", "g", "h"}) fs::create_directories(folder.path("data/") + name);
  CHECK(folder_refusal(folder) ==
        "data folder /data: no image (.jpg, .jpeg or .png) in the sub-folders b, c, d, e, f and 2 more");
}

TEST_CASE("image folders: an image that nobody decodes is not left out") {
  const test::TemporaryFolder folder;
  touch_file(folder, "data/a/1.png");
  touch_file(folder, "data/a/2.WebP");
  CHECK(folder_refusal(folder) ==
        "data file /data/a/2.WebP: images of type .webp are not decoded: convert it to JPEG or PNG, or move it "
        "elsewhere");
}

TEST_CASE("image folders: links are followed, but not in a circle") {
  const test::TemporaryFolder folder;
  touch_file(folder, "elsewhere/1.png");
  fs::create_directories(folder.path("data"));
  fs::create_directory_symlink(folder.path("elsewhere"), folder.path("data/a"));
  CHECK(list_image_folder(folder.path("data")).value().files.count() == 1);
  fs::create_directory_symlink(folder.path("data"), folder.path("elsewhere/up"));
  CHECK_THAT(folder_refusal(folder), Catch::Contains("is a link that leads back to a folder above it"));
  fs::remove(folder.path("elsewhere/up"));
  fs::create_symlink(folder.path("nothing"), folder.path("elsewhere/2.png"));
  CHECK(folder_refusal(folder) == "data file /data/a/2.png is not a regular file");
}

TEST_CASE("image folders: labels follow the classes") {
  const test::TemporaryFolder folder;
  for (const char* name : {"d/a/1.png", "d/a/2.png", "d/b/1.png", "d/c/1.png", "d/c/2.png"}) touch_file(folder, name);
  const Result<ImageFolder> listed = list_image_folder(folder.path("d"));
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < listed.value().files.count(); ++i) labels.push_back(listed.value().label(i));
  CHECK(labels == std::vector<std::int64_t>{0, 0, 1, 2, 2});
}

TEST_CASE("image folders: both splits have the same classes") {
  CHECK(class_difference({"a", "b"}, {"a", "b"}).empty());
  CHECK(class_difference({"a", "b"}, {"a"}) ==
        "the classes of the two folders differ: the folder to validate on lacks b");
  CHECK(class_difference({"a"}, {"a", "b", "c"}) ==
        "the classes of the two folders differ: the folder to validate on has b, c, which is not trained on");
  CHECK(class_difference({"a", "c"}, {"a", "b"}) ==
        "the classes of the two folders differ: the folder to validate on lacks c, and has b, which is not trained on");
}

TEST_CASE("masks: pairs by their names, in the images' order") {
  const test::TemporaryFolder folder;
  for (const char* name :
       {"images/b.jpg", "images/a.png", "images/deep/c.jpeg", "masks/a.png", "masks/b.png", "masks/deep/c.PNG"})
    touch_file(folder, name);
  const Result<MaskedImages> listed = list_masked_images(folder.path("images"), folder.path("masks"));
  REQUIRE(listed.ok());
  CHECK(paths_of(listed.value().images, folder.path("images")) ==
        std::vector<std::string>{"a.png", "b.jpg", "deep/c.jpeg"});
  CHECK(paths_of(listed.value().masks, folder.path("masks")) ==
        std::vector<std::string>{"a.png", "b.png", "deep/c.PNG"});
}

TEST_CASE("masks: a file without its partner is named, and the partner") {
  const test::TemporaryFolder folder;
  touch_file(folder, "images/a.jpg");
  fs::create_directories(folder.path("masks"));
  CHECK(mask_refusal(folder) == "data folder /masks has no image (.jpg, .jpeg or .png)");
  touch_file(folder, "masks/b.png");
  CHECK(mask_refusal(folder) == "data file /images/a.jpg has no mask: expected /masks/a.png");
  touch_file(folder, "masks/a.png");
  CHECK(mask_refusal(folder) ==
        "data file /masks/b.png is the mask of no image: expected /images/b with .jpg, .jpeg or .png");
  touch_file(folder, "images/b.png");
  CHECK(mask_refusal(folder).empty());
  touch_file(folder, "images/b.jpg");
  CHECK(mask_refusal(folder) ==
        "data files /images/b.jpg and /images/b.png differ in their ending alone: one of them is too much");
  fs::remove(folder.path("images/b.jpg"));
  touch_file(folder, "masks/c.jpg");
  CHECK(mask_refusal(folder) == "data file /masks/c.jpg: expected a PNG file, whose pixels keep their values");
}

}  // namespace sgd::data
