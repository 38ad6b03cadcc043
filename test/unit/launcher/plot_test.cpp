// Curves: which, over what, as text and as an image.

#include <png.h>

#include <algorithm>

#include <catch2/catch.hpp>

#include "launcher/cli/dot_canvas.hpp"
#include "launcher/cli/glyphs.hpp"
#include "launcher/cli/metric_series.hpp"
#include "launcher/cli/png_plot.hpp"
#include "launcher/cli/report_printer.hpp"
#include "launcher/cli/terminal_plot.hpp"
#include "test/unit/common/temporary_folder.hpp"

namespace sgd::cli {
namespace {

using PlotJson = nlohmann::ordered_json;

MetricSeries plotted_run(const std::string& over) {
  MetricSeries metrics(over);
  for (int epoch = 1; epoch <= 3; ++epoch) {
    metrics.add({{"phase", "train"},
                 {"epoch", epoch},
                 {"num_samples", 100},
                 {"train_loss", 1.0 / epoch},
                 {"last_train_loss", 0.5},
                 {"lr", 0.1},
                 {"step", 10 * epoch},
                 {"_timestamp", 1000 + epoch},
                 {"_training_iteration", 2 * epoch - 1}});
    metrics.add({{"phase", "validate"},
                 {"num_samples", 20},
                 {"val_loss", nullptr},
                 {"val_accuracy", 0.25 * epoch},
                 {"step", 10 * epoch},
                 {"_timestamp", 1000 + epoch},
                 {"_training_iteration", 2 * epoch}});
  }
  return metrics;
}

std::string names_of(const std::vector<Series>& series) {
  std::string names;
  for (const Series& one : series) names += one.name + " ";
  return names;
}

}  // namespace

TEST_CASE("plot: metrics by name") {
  const MetricSeries metrics = plotted_run("step");
  CHECK(names_of(metrics.select({}).value()) == "train_loss val_accuracy ");
  CHECK(names_of(metrics.select({"lr"}).value()) == "lr ");
  CHECK(names_of(metrics.select({"num_samples"}).value()) == "train/num_samples validate/num_samples ");
  CHECK(names_of(metrics.select({"validate/num_samples", "lr"}).value()) == "validate/num_samples lr ");
  const auto unknown = metrics.select({"train_los"});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().message == "no metric \"train_los\"; did you mean \"train_loss\"?");
  CHECK(metrics.select({"val_acc"}).error().message == "no metric \"val_acc\"; did you mean \"val_accuracy\"?");
  CHECK(metrics.select({"reward"}).error().message ==
        "no metric \"reward\": known are epoch, train/num_samples, validate/num_samples, train_loss, "
        "last_train_loss, lr, "
        "train/step, validate/step, val_accuracy");
  CHECK_FALSE(metrics.select({"train/val_accuracy"}).ok());
  MetricSeries others("step");
  others.add({{"phase", "train"}, {"step", 1}, {"reward", 3}, {"deep", {{"er", 2}}}});
  CHECK(names_of(others.select({}).value()) == "reward deep/er ");
  CHECK(names_of(others.select({"deep/er"}).value()) == "deep/er ");
}

TEST_CASE("plot: over steps, epochs, reports or time") {
  const auto first_and_last = [](const std::string& over) {
    const auto points = plotted_run(over).select({"train_loss"}).value().front().points;
    return std::pair(points.front().first, points.back().first);
  };
  CHECK(first_and_last("step") == std::pair(10.0, 30.0));
  CHECK(first_and_last("epoch") == std::pair(1.0, 3.0));
  CHECK(first_and_last("iteration") == std::pair(1.0, 5.0));
  CHECK(first_and_last("time") == std::pair(0.0, 2.0));
}

TEST_CASE("plot: of ever more reports at most kPointsMax are points, and none of the ends and extremes is lost") {
  constexpr std::size_t kReports = 200'000;
  REQUIRE(kReports > 3 * MetricSeries::kPointsMax);
  MetricSeries metrics("step");
  for (std::size_t step = 1; step <= kReports; ++step) {
    const double loss = step == 12'345 ? 9 : step == 150'001 ? -9 : step % 2 == 0 ? 0.5 : 0.25;
    metrics.add({{"phase", "train"}, {"step", step == 77'777 ? 2 * kReports : step}, {"loss", loss}});
  }
  const Series loss = metrics.select({"loss"}).value().front();
  CHECK(loss.points.size() <= MetricSeries::kPointsMax);
  CHECK(loss.points.size() + loss.left_out == kReports);
  CHECK(loss.points.front() == std::pair(1.0, 0.25));
  CHECK(loss.points.back() == std::pair(200'000.0, 0.5));
  CHECK(x_labels(loss) == std::pair(std::string("1"), std::string("400000")));
  CHECK(y_range(loss).least == -9);
  CHECK(y_range(loss).greatest == 9);
  CHECK(plot_text(loss, {}).starts_with("loss: 0.5 after 200000 reports\n"));
}

TEST_CASE("plot: plain text") {
  const Series series{"loss", {{0, 4}, {1, 2}, {2, 1}, {3, 0}}};
  PlotShape shape;
  shape.columns = 36;
  shape.rows = 5;
  CHECK(plot_text(series, shape) ==
        "loss: 0 after 4 reports\n"
        "         4 |**\n"
        "           |  ****\n"
        "         2 |      ******\n"
        "           |            *******\n"
        "         0 |                   *****\n"
        "           +------------------------\n"
        "            0         step         3\n");
  shape.is_utf8 = true;
  const std::string dots = plot_text(series, shape);
  CHECK(dots.find("│") != std::string::npos);
  CHECK(dots.find("└────") != std::string::npos);
  CHECK(dots.find("\xe2\xa0") != std::string::npos);  // Unicode 2800 to 283f.
  // One point, one value, and less room than anything takes.
  const std::string flat = plot_text({"x", {{5, 7}}}, {.columns = 1, .rows = 3});
  CHECK(flat.find("7 after 1 report\n") != std::string::npos);
  CHECK(flat.find("*") != std::string::npos);
}

TEST_CASE("plot: what the locale says") {
  CHECK(speaks_utf8(nullptr, nullptr, "en_GB.UTF-8"));
  CHECK(speaks_utf8("", "C.utf8", nullptr));
  CHECK_FALSE(speaks_utf8("C", nullptr, "en_GB.UTF-8"));
  CHECK_FALSE(speaks_utf8(nullptr, nullptr, nullptr));
}

TEST_CASE("plot: a PNG image") {
  const test::TemporaryFolder folder;
  const std::string path = folder.path("curves.png");
  std::vector<Panel> panels;
  const auto curves = plotted_run("step").select({}).value();
  for (const Series& series : curves) panels.push_back(panel_of(series, "step"));
  REQUIRE(write_png(path, panels).ok());
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_file(&image, path.c_str()) != 0);
  image.format = PNG_FORMAT_GRAY;
  CHECK(image.width == 960);
  CHECK(image.height == 520);
  std::vector<unsigned char> pixels(PNG_IMAGE_SIZE(image));
  REQUIRE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr) != 0);
  const auto dark = std::count_if(pixels.begin(), pixels.end(), [](unsigned char gray) { return gray < 160; });
  CHECK(dark > 3000);
  CHECK(dark < 60000);
  CHECK_FALSE(write_png(folder.path("missing/curves.png"), panels).ok());
  const Status many = write_png(path, std::vector<Panel>(kPngPanelsMax + 1, panels.front()));
  REQUIRE_FALSE(many.ok());
  CHECK(many.error().message == "65 curves are too many for one image, at most 64: name some");
  CHECK(glyph_of('a') != glyph_of('b'));
  CHECK(glyph_of('\x01') == glyph_of('\x02'));
}

TEST_CASE("plot: an image takes a file's place, and root follows nobody else's link to it") {
  const test::TemporaryFolder folder;
  const std::vector<Panel> panels = {panel_of(plotted_run("step").select({}).value().front(), "step")};
  folder.write("image.png", "before");
  std::filesystem::create_hard_link(folder.path("image.png"), folder.path("other.png"));
  std::filesystem::create_symlink("image.png", folder.path("own.png"));
  REQUIRE(write_png(folder.path("own.png"), panels).ok());
  CHECK(std::filesystem::is_symlink(folder.path("own.png")));
  CHECK(std::filesystem::file_size(folder.path("image.png")) > 1000);
  CHECK(std::filesystem::file_size(folder.path("other.png")) == 6);  // Another name of what was there.
  CHECK_FALSE(std::filesystem::exists(folder.path("image.png.tmp")));
  CHECK(write_png("/dev/null", panels).ok());
  if (::geteuid() != 0) return;
  constexpr uid_t kStranger = 54321;
  std::filesystem::create_symlink("other.png", folder.path("theirs.png"));
  REQUIRE(::lchown(folder.path("theirs.png").c_str(), kStranger, kStranger) == 0);
  const Status refused = write_png(folder.path("theirs.png"), panels);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("is a link of user 54321, and root would write where it leads to") !=
        std::string::npos);
  CHECK(std::filesystem::file_size(folder.path("other.png")) == 6);
}

TEST_CASE("plot: a PNG image of as many curves as an experiment has trials") {
  const test::TemporaryFolder folder;
  constexpr std::size_t kTrials = 100'000;  // With a canvas for each this takes minutes.
  Panel panel;
  panel.is_joined = false;
  panel.marked = 0;
  panel.x = {0, 2};
  panel.curves.assign(kTrials, {"1", {{1.0, 0.5}}});
  panel.curves.front() = {"0", {{0.5, 0.25}}};
  REQUIRE(write_png(folder.path("many.png"), {panel}).ok());
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_file(&image, folder.path("many.png").c_str()) != 0);
  image.format = PNG_FORMAT_RGB;
  std::vector<unsigned char> pixels(PNG_IMAGE_SIZE(image));
  REQUIRE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr) != 0);
  const auto count = [&](const std::vector<unsigned char>& color) {
    int pixels_of_color = 0;
    for (std::size_t at = 0; at < pixels.size(); at += 3)
      pixels_of_color += std::equal(color.begin(), color.end(), pixels.begin() + static_cast<std::ptrdiff_t>(at));
    return pixels_of_color;
  };
  // A square of five dots for the others, which stand at one place, and one for the best; a dot is two pixels wide.
  CHECK(count({176, 184, 196}) == 36);
  CHECK(count({31, 97, 184}) == 36);
}

TEST_CASE("console: a report as a line") {
  CHECK(report_line(PlotJson::parse(
            R"({"phase": "train", "epoch": 2, "train_loss": 0.25, "a b": {"c\n": 1}, "text": "x\ny", "step": 30,
                "_timestamp": 1, "_training_iteration": 3})")) ==
        "report 3  train  epoch 2  step 30  train_loss 0.25  a_b/c_ 1  text \"x\\ny\"");
  CHECK(report_line(PlotJson::object()) == "report 0  ");
}

}  // namespace sgd::cli
