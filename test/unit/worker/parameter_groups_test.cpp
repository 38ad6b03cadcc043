// Updates of parts of the flat buffer.

#include "worker/core/parameter_groups.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

namespace sgd::worker {
namespace {

job::Optimizer group_settings(const std::string& type, double lr, double weight_decay) {
  job::Optimizer s;
  s.type = type;
  s.lr = lr;
  s.weight_decay = weight_decay;
  s.momentum = type == "sgd" || type == "rmsprop" ? 0.9 : 0;
  s.dampening = type == "sgd" ? 0.5 : 0;
  s.amsgrad = type == "adam";
  s.centered = type == "rmsprop";
  s.lr_decay = type == "adagrad" ? 0.1 : 0;
  return s;
}

std::vector<float> made_grads(std::size_t count, int step) {
  std::vector<float> grads(count);
  for (std::size_t i = 0; i < count; ++i) grads[i] = static_cast<float>(std::sin(static_cast<double>(i) + 3.0 * step));
  return grads;
}

bool same_bits(std::span<const float> one, std::span<const float> other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size_bytes()) == 0;
}

const std::vector<std::string> kTypes = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};

}  // namespace

TEST_CASE("groups: each parameter is updated as by an optimizer of its own") {
  // The gap after the second parameter belongs to none.
  const std::vector<GroupedParameter> layout = {{{0, 7}, 0}, {{7, 20}, 0}, {{32, 5}, 1}, {{37, 11}, 0}};
  constexpr std::size_t kCount = 50;
  for (const std::string& type : kTypes) {
    INFO(type);
    const std::vector<job::Optimizer> groups = {group_settings(type, 0.05, 0.1), group_settings(type, 0.01, 0)};
    const auto optimizer = make_step_optimizer(groups, kCount);
    ParameterGroups parameters(layout);
    std::vector<float> params(kCount, 0.5f);
    std::vector<std::unique_ptr<StepOptimizer>> own;
    std::vector<std::vector<float>> alone;
    for (const GroupedParameter& one : layout) {
      own.push_back(make_step_optimizer(groups[one.group], one.range.count));
      alone.emplace_back(one.range.count, 0.5f);
    }
    for (int step = 0; step < 12; ++step) {
      const std::vector<float> grads = made_grads(kCount, step);
      // The second has none in every third step, and the third none before the fifth.
      const std::vector<bool> has_gradient = {true, step % 3 != 0, step >= 5, true};
      parameters.step(*optimizer, params, grads, groups, has_gradient, 0.5f);
      for (std::size_t i = 0; i < layout.size(); ++i) {
        if (!has_gradient[i]) continue;
        const auto part = std::span(grads).subspan(layout[i].range.offset, layout[i].range.count);
        own[i]->step(alone[i], part, groups[layout[i].group].lr, 0.5f);
      }
    }
    CHECK(parameters.steps() == std::vector<std::int64_t>{12, 8, 7, 12});
    for (std::size_t i = 0; i < layout.size(); ++i) {
      const FlatRange range = layout[i].range;
      CHECK(same_bits(std::span(params).subspan(range.offset, range.count), alone[i]));
      const auto whole = optimizer->buffers();
      const auto parts = own[i]->buffers();
      REQUIRE(whole.size() == parts.size());
      for (std::size_t b = 0; b < whole.size(); ++b) {
        CHECK(whole[b].name == parts[b].name);
        CHECK(same_bits(whole[b].values.subspan(range.offset, range.count), parts[b].values));
      }
    }
    for (const std::size_t gap : {27u, 31u, 48u, 49u}) CHECK(params[gap] == 0.5f);
  }
}

TEST_CASE("groups: one group whose parameters all have gradients is the whole buffer's update") {
  for (const std::string& type : kTypes) {
    INFO(type);
    const job::Optimizer settings = group_settings(type, 0.05, 0.1);
    const auto whole = make_step_optimizer(settings, 40);
    const auto parts = make_step_optimizer(settings, 40);
    ParameterGroups parameters({{{0, 3}}, {{3, 30}}, {{33, 7}}});
    std::vector<float> one(40, 0.5f), other = one;
    for (int step = 0; step < 5; ++step) {
      const std::vector<float> grads = made_grads(40, step);
      whole->step(one, grads, settings.lr, 0.5f);
      parameters.step(*parts, other, grads, {settings}, {true, true, true}, 0.5f);
    }
    CHECK(same_bits(one, other));
  }
}

TEST_CASE("groups: counts from a checkpoint go on bit for bit") {
  const job::Optimizer settings = group_settings("adam", 0.05, 0.1);
  const std::vector<GroupedParameter> layout = {{{0, 3}}, {{3, 5}}};
  const auto straight = make_step_optimizer(settings, 8);
  const auto resumed = make_step_optimizer(settings, 8);
  ParameterGroups first(layout), second(layout);
  std::vector<float> params(8, 0.5f);
  for (int step = 0; step < 4; ++step) {
    first.step(*straight, params, made_grads(8, step), {settings}, {true, step == 2}, 1);
  }
  std::vector<float> copy = params;
  for (std::size_t b = 0; b < straight->buffers().size(); ++b) {
    std::copy_n(straight->buffers()[b].values.begin(), 8, resumed->buffers()[b].values.begin());
  }
  second.set_steps(first.steps());
  for (int step = 4; step < 8; ++step) {
    first.step(*straight, params, made_grads(8, step), {settings}, {true, true}, 1);
    second.step(*resumed, copy, made_grads(8, step), {settings}, {true, true}, 1);
  }
  CHECK(same_bits(params, copy));
}

TEST_CASE("groups: a group without momentum beside one with it") {
  const std::vector<job::Optimizer> groups = {group_settings("sgd", 0.5, 0), [] {
                                                job::Optimizer plain = group_settings("sgd", 0.5, 0);
                                                plain.momentum = 0;
                                                return plain;
                                              }()};
  const auto optimizer = make_step_optimizer(groups, 2);
  ParameterGroups parameters({{{0, 1}, 0}, {{1, 1}, 1}});
  std::vector<float> params = {0, 0};
  for (int step = 0; step < 2; ++step) {
    parameters.step(*optimizer, params, std::vector<float>{1, 1}, groups, {true, true}, 1);
  }
  CHECK(params[0] == -0.5f - 0.5f * (0.9f + 0.5f));
  CHECK(params[1] == -1);
  CHECK(optimizer->buffers()[0].values[1] == 0);
}

}  // namespace sgd::worker
