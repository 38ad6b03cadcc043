// A transformer of tokens: embeddings of tokens and places, encoder layers with normalization first, a last
// normalization, and either the next token at each place or one class. Parameters are named as those of PyTorch's
// TransformerEncoder, behind "encoder.".
#include <stdexcept>

#include "worker/builtin/models/factories.hpp"

namespace sgd::builtin {
namespace {

constexpr double kEmbeddingDeviation = 0.02;  // Larger ones make tied outputs too sure of themselves.

struct TransformerSizes {
  std::int64_t vocabulary = 256;
  std::int64_t length = 1;
  std::int64_t width = 128;
  std::int64_t layers = 2;
  std::int64_t heads = 4;
  std::int64_t forward_width = 512;
  std::int64_t classes = 0;  ///< 0: the next token is learnt.
  double dropout = 0.1;
  bool is_tied = false;
  bool takes_first = false;  ///< A class is read from the first token, and not from the mean of all.
};

class EncoderLayer : public torch::nn::Module {
 public:
  explicit EncoderLayer(const TransformerSizes& sizes)
      : heads_(sizes.heads),
        is_causal_(sizes.classes == 0),
        dropout_(sizes.dropout),
        self_attn_(register_module("self_attn", torch::nn::MultiheadAttention(sizes.width, sizes.heads))),
        linear1_(register_module("linear1", torch::nn::Linear(sizes.width, sizes.forward_width))),
        linear2_(register_module("linear2", torch::nn::Linear(sizes.forward_width, sizes.width))),
        norm1_(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({sizes.width})))),
        norm2_(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({sizes.width})))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor values = input + dropped(attention(norm1_->forward(input)));
    const at::Tensor inner = dropped(at::gelu(linear1_->forward(norm2_->forward(values))));
    return values + dropped(linear2_->forward(inner));
  }

 private:
  at::Tensor dropped(const at::Tensor& values) const {
    return dropout_ > 0 ? at::dropout(values, dropout_, is_training()) : values;
  }

  /// n x length x width to the same. MultiheadAttention keeps the parameters; its own forward() makes the whole matrix
  /// of weights, which nobody asks for.
  at::Tensor attention(const at::Tensor& input) {
    const std::int64_t count = input.size(0), length = input.size(1), width = input.size(2);
    const std::vector<at::Tensor> parts = at::linear(input, self_attn_->in_proj_weight, self_attn_->in_proj_bias)
                                              .view({count, length, 3, heads_, width / heads_})
                                              .permute({2, 0, 3, 1, 4})
                                              .unbind();
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], std::nullopt,
                                                              is_training() ? dropout_ : 0.0, is_causal_);
    return self_attn_->out_proj->forward(mixed.transpose(1, 2).reshape({count, length, width}));
  }

  std::int64_t heads_;
  bool is_causal_;
  double dropout_;
  torch::nn::MultiheadAttention self_attn_;
  torch::nn::Linear linear1_;
  torch::nn::Linear linear2_;
  torch::nn::LayerNorm norm1_;
  torch::nn::LayerNorm norm2_;
};

class Encoder : public torch::nn::Module {
 public:
  explicit Encoder(const TransformerSizes& sizes) {
    const auto list = register_module("layers", std::make_shared<torch::nn::Module>());
    for (std::int64_t i = 0; i < sizes.layers; ++i)
      layers_.push_back(list->register_module(std::to_string(i), std::make_shared<EncoderLayer>(sizes)));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({sizes.width})));
  }

  at::Tensor forward(at::Tensor values) {
    for (const std::shared_ptr<EncoderLayer>& layer : layers_) values = layer->forward(values);
    return norm_->forward(values);
  }

 private:
  std::vector<std::shared_ptr<EncoderLayer>> layers_;
  torch::nn::LayerNorm norm_ = nullptr;
};

/// Outputs of a language model: a matrix of its own, or the embedding's.
class TokenOutputs : public torch::nn::Module {
 public:
  explicit TokenOutputs(const at::Tensor& weight) : weight_(register_parameter("weight", weight)) {}
  at::Tensor forward(const at::Tensor& values) { return at::linear(values, weight_); }

 private:
  at::Tensor weight_;
};

/// A table that is looked up, drawn from a normal distribution.
torch::nn::Embedding table_of(std::int64_t rows, std::int64_t width) {
  torch::nn::Embedding table(rows, width);
  torch::nn::init::normal_(table->weight, 0.0, kEmbeddingDeviation);
  return table;
}

class Transformer : public Model {
 public:
  explicit Transformer(const TransformerSizes& sizes)
      : sizes_(sizes),
        embedding_(register_module("embedding", table_of(sizes.vocabulary, sizes.width))),
        positions_(register_module("positions", table_of(sizes.length, sizes.width))),
        encoder_(register_module("encoder", std::make_shared<Encoder>(sizes))) {
    if (sizes.classes > 0) {
      class_outputs_ = register_module("head", torch::nn::Linear(sizes.width, sizes.classes));
      return;
    }
    at::Tensor weight = embedding_->weight;
    if (!sizes.is_tied) weight = torch::nn::Linear(sizes.width, sizes.vocabulary)->weight;
    token_outputs_ = register_module("head", std::make_shared<TokenOutputs>(weight));
  }

  at::Tensor forward(const at::Tensor& features) override {
    const at::Tensor tokens = whole_numbers(features);
    if (tokens.dim() != 2 || tokens.size(1) > sizes_.length)
      throw std::invalid_argument("the transformer takes rows of at most " + std::to_string(sizes_.length) + " tokens");
    at::Tensor values = embedding_->forward(tokens) + positions_->weight.slice(0, 0, tokens.size(1));
    if (sizes_.dropout > 0) values = at::dropout(values, sizes_.dropout, is_training());
    values = encoder_->forward(values);
    if (token_outputs_) return token_outputs_->forward(values).transpose(1, 2);
    return class_outputs_->forward(sizes_.takes_first ? values.select(1, 0) : values.mean(1));
  }

 private:
  /// Data sets of numbers give tokens as floats.
  at::Tensor whole_numbers(const at::Tensor& features) const {
    if (!features.is_floating_point()) return features;
    const at::Tensor tokens = features.to(at::kLong);
    const at::Tensor is_token = tokens.eq(features).logical_and(tokens.ge(0)).logical_and(tokens.lt(sizes_.vocabulary));
    if (!is_token.all().item<bool>())
      throw std::invalid_argument("a sample has numbers that are no tokens: whole numbers from 0 to " +
                                  std::to_string(sizes_.vocabulary - 1));
    return tokens;
  }

  TransformerSizes sizes_;
  torch::nn::Embedding embedding_;
  torch::nn::Embedding positions_;
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<TokenOutputs> token_outputs_;
  torch::nn::Linear class_outputs_ = nullptr;
};

}  // namespace

std::shared_ptr<Model> make_transformer(const nlohmann::json& settings, const SampleShape& sample) {
  if (sample.features.size() != 1) throw std::invalid_argument("model \"transformer\" needs rows of tokens");
  TransformerSizes sizes;
  sizes.length = sample.features[0];
  sizes.vocabulary = settings.value("vocabulary", sizes.vocabulary);
  sizes.width = settings.value("embedding", sizes.width);
  sizes.layers = settings.value("layers", sizes.layers);
  sizes.heads = settings.value("heads", sizes.heads);
  sizes.forward_width = settings.value("feedforward", sizes.forward_width);
  sizes.dropout = settings.value("dropout", sizes.dropout);
  sizes.is_tied = settings.value("tied", sizes.is_tied);
  sizes.takes_first = settings.value("pooling", std::string("mean")) == "first";
  if (settings.value("task", std::string("language_model")) == "classification")
    sizes.classes = settings.value("outputs", sample.outputs);
  if (sizes.width % sizes.heads != 0)
    throw std::invalid_argument("model \"transformer\": \"embedding\" must be a multiple of \"heads\"");
  return std::make_shared<Transformer>(sizes);
}

}  // namespace sgd::builtin
