#include "worker/torch/flat_parameters.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <stdexcept>

#include "common/base/assert.hpp"
#include "worker/torch/gradient_place.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kAlignedFloats = 16;  // 64 bytes.

/// Whose backward pass runs on this thread: LibTorch runs that of CPU tensors on the thread that asks for it.
thread_local FlatParameters* in_backward = nullptr;

at::Tensor view_of(const Device& device, std::span<float> buffer, const ParameterPlace& place) {
  return device.wrap(buffer.data() + place.offset, place.shape);
}

}  // namespace

/// Called when a parameter has got its gradient, or more of it.
struct FlatParameters::PlacingHook : torch::autograd::PostAccumulateGradHook {
  PlacingHook(FlatParameters& flat, std::size_t index) : flat_(flat), index_(index) {}
  void operator()(const at::Tensor& parameter) override {
    if (flat_.takes_own_passes_only_ && !flat_.is_in_pass_)
      throw std::logic_error(
          "loss.backward() is called with \"precision\": \"fp16\", which multiplies losses with a scale: call "
          "step.backward(loss) or session.backward(loss) in its place");
    if (parameter.grad().layout() != at::kStrided) return;  // collect_gradients() says so.
    flat_.place(index_);
    flat_.keep_sample(index_);
  }
  FlatParameters& flat_;
  std::size_t index_;
};

std::vector<TrainedParameter> trainable_parameters(const NamedModels& models) {
  std::vector<TrainedParameter> all;
  for (auto& [name, tensor] : named_parameters(models)) {
    if (!tensor.requires_grad()) continue;
    const auto same = [&tensor = tensor](const TrainedParameter& one) { return one.tensor.is_same(tensor); };
    const auto shared = std::find_if(all.begin(), all.end(), same);
    if (shared == all.end())
      all.push_back({name, tensor});
    else
      shared->also.push_back(name);
  }
  return all;
}

FlatParameters::FlatParameters(std::vector<TrainedParameter> parameters, const Device& device) : device_(device) {
  std::size_t offset = 0;
  for (TrainedParameter& one : parameters) {
    if (one.tensor.layout() != at::kStrided || one.tensor.scalar_type() != at::kFloat)
      throw std::invalid_argument("parameter " + one.name + " is not a dense float32 tensor");
    ParameterPlace place;
    place.name = std::move(one.name);
    place.also = std::move(one.also);
    place.shape = one.tensor.sizes().vec();
    place.offset = offset;
    place.count = static_cast<std::size_t>(one.tensor.numel());
    offset += (place.count + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
    places_.push_back(std::move(place));
    parameters_.push_back(std::move(one.tensor));
  }
  const at::NoGradGuard no_gradients;
  if (device_.is_separate()) {
    on_device_ = at::zeros({static_cast<std::int64_t>(offset)}, at::TensorOptions().device(device_.place()));
    values_ = {static_cast<float*>(on_device_.data_ptr()), offset};
  } else {
    on_host_ = AlignedFloats(offset);
    values_ = on_host_.span();
  }
  for (std::size_t i = 0; i < places_.size(); ++i) {
    at::Tensor view = view_of(device_, values_, places_[i]);
    view.copy_(parameters_[i]);
    parameters_[i].set_data(view);
  }
}

ParameterRange FlatParameters::range(std::size_t first, std::size_t count) const {
  SGD_ASSERT(first + count <= places_.size());
  if (count == 0) return {first, 0, {0, 0}};
  const std::size_t begin = places_[first].offset;
  const std::size_t end = first + count < places_.size() ? places_[first + count].offset : size();
  return {first, count, {begin, end - begin}};
}

FlatParameters::~FlatParameters() {
  if (in_backward == this) in_backward = nullptr;
  if (views_.empty()) return;
  for (const at::Tensor& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void FlatParameters::attach_gradients(std::span<float> gradients) {
  SGD_ASSERT(gradients.size() >= size());
  gradients_ = gradients;
  drop_gradients(all());  // Of whatever setup() has done.
  views_.clear();
  claimed_.assign(places_.size(), false);
  samples_.assign(places_.size(), Sample{});
  for (std::size_t i = 0; i < places_.size(); ++i) {
    views_.push_back(view_of(device_, gradients_, places_[i]));
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<PlacingHook>(*this, i));
    const std::size_t end = places_[i].offset + places_[i].count;
    const std::size_t next = i + 1 < places_.size() ? places_[i + 1].offset : size();
    if (next > end) (void)device_.wrap(gradients_.data() + end, next - end).zero_();
  }
}

FlatParameters::Backward::Backward(FlatParameters& parameters) : parameters_(parameters) {
  parameters.claimed_.assign(parameters.places_.size(), false);
  parameters.is_in_pass_ = true;
  in_backward = &parameters;
}

FlatParameters::Backward::~Backward() {
  parameters_.is_in_pass_ = false;
  in_backward = nullptr;
}

std::vector<bool> FlatParameters::collect_gradients(const ParameterRange& range) {
  std::vector<bool> had(range.count);
  for (std::size_t i = 0; i < range.count; ++i) {
    const std::size_t index = range.first + i;
    // A tensor without elements has no address.
    const bool has_place = places_[index].count != 0;
    if (has_place && parameters_[index].const_data_ptr() != values_.data() + places_[index].offset)
      throw std::runtime_error("parameter " + places_[index].name +
                               " has been moved or converted since setup(), so what is trained is not what is saved: "
                               "call to(), and replace tensors, inside setup() only");
    had[i] = parameters_[index].grad().defined();
    const bool is_placed = parameters_[index].grad().is_same(views_[index]);
    is_rewritten_ = is_rewritten_ || (is_placed && is_rewritten(index));
    place(index);
    if (!is_placed) keep_sample(index);
  }
  return had;
}

void FlatParameters::drop_gradients(const ParameterRange& range) {
  for (std::size_t i = 0; i < range.count; ++i) parameters_[range.first + i].mutable_grad().reset();
}

void FlatParameters::scale_gradients(const ParameterRange& range, double factor) {
  for (std::size_t i = 0; i < range.count; ++i) {
    at::Tensor& gradient = parameters_[range.first + i].mutable_grad();
    if (!gradient.defined()) continue;
    is_rewritten_ = is_rewritten_ || is_rewritten(range.first + i);
    gradient.mul_(factor);
    keep_sample(range.first + i);
  }
}

bool FlatParameters::has_gradients(const ParameterRange& range) const {
  for (std::size_t i = 0; i < range.count; ++i)
    if (parameters_[range.first + i].grad().defined()) return true;
  return false;
}

void FlatParameters::place(std::size_t index) {
  at::Tensor& gradient = parameters_[index].mutable_grad();
  const at::Tensor& view = views_[index];
  if (gradient.is_same(view)) return;
  const at::NoGradGuard no_gradients;
  if (!gradient.defined()) {
    view.zero_();
  } else if (gradient.layout() != at::kStrided) {
    throw std::runtime_error("the gradient of parameter " + places_[index].name + " is sparse, which is not supported");
  } else if (gradient.data_ptr() != view.data_ptr() || !gradient.is_contiguous()) {
    view.copy_(gradient);
  }
  gradient = view;
}

FlatParameters::Sample FlatParameters::sample(std::size_t index) const {
  const float* first = gradients_.data() + places_[index].offset;
  const std::size_t last = places_[index].count - 1;
  return {std::bit_cast<std::uint32_t>(first[0]), std::bit_cast<std::uint32_t>(first[last / 2]),
          std::bit_cast<std::uint32_t>(first[last])};
}

/// Once its gradient is at its place, and in the cache.
void FlatParameters::keep_sample(std::size_t index) {
  if (!device_.is_separate() && places_[index].count != 0) samples_[index] = sample(index);
}

/// A tensor that user code has put in the place of a pass's counts as none: what it means is its own.
bool FlatParameters::is_rewritten(std::size_t index) const {
  if (device_.is_separate() || places_[index].count == 0) return false;
  return parameters_[index].grad().is_same(views_[index]) && sample(index) != samples_[index];
}

std::optional<std::size_t> FlatParameters::find(const at::Tensor& parameter) const {
  const auto same = [&parameter](const at::Tensor& one) { return one.is_same(parameter); };
  const auto found = std::find_if(parameters_.begin(), parameters_.end(), same);
  if (found == parameters_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - parameters_.begin());
}

at::Tensor claim_gradient_place(const at::Tensor& parameter) {
  if (in_backward == nullptr) return {};
  const std::optional<std::size_t> index = in_backward->find(parameter);
  // A gradient that is there is added to.
  if (!index || in_backward->claimed_[*index] || parameter.grad().defined()) return {};
  in_backward->claimed_[*index] = true;
  return in_backward->views_[*index].alias();
}

std::uint64_t FlatParameters::hash(std::span<const float> values) {
  // Eight independent lanes keep the multiplier busy; each step is a bijection of its lane.
  constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  constexpr std::size_t kLanes = kAlignedFloats / 2;
  std::uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  const float* data = values.data();
  for (std::size_t at = 0; at + kAlignedFloats <= values.size(); at += kAlignedFloats) {
    std::uint64_t words[kLanes];
    std::memcpy(words, data + at, sizeof words);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t mixed = (lanes[lane] ^ words[lane]) * kMultiplier;
      lanes[lane] = mixed ^ (mixed >> 29);
    }
  }
  std::uint64_t result = values.size();
  for (const std::uint64_t lane : lanes) result = (result ^ lane) * kMultiplier + (result >> 31);
  return result;
}

}  // namespace sgd::worker
