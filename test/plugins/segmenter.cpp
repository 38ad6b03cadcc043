// A model that gives each pixel of an image its classes, for data sets with masks.

#include <sgd/sgd.hpp>

namespace {

class Segmenter : public sgd::Model {
 public:
  Segmenter(std::int64_t channels, std::int64_t classes)
      : first_(torch::nn::Conv2dOptions(channels, 8, 3).padding(1)), last_(torch::nn::Conv2dOptions(8, classes, 1)) {
    register_module("first", first_);
    register_module("last", last_);
  }
  at::Tensor forward(const at::Tensor& features) override { return last_(first_(features).relu()); }

 private:
  torch::nn::Conv2d first_;
  torch::nn::Conv2d last_;
};

std::shared_ptr<sgd::Model> make_segmenter(const nlohmann::json& settings, const sgd::SampleShape& sample) {
  return std::make_shared<Segmenter>(sample.features.at(0), settings.at("outputs").get<std::int64_t>());
}

}  // namespace

SGD_REGISTER_MODEL("segmenter", make_segmenter,
                   R"({"outputs": {"type": "integer", "minimum": 2, "maximum": 256, "default": 2}})");
