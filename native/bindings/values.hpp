// SPDX-License-Identifier: Apache-2.0
// C++ values in Python: bytes, times, and structs and enums with the names of their members.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/bytes.hpp"
#include "core/secret.hpp"
#include "core/time.hpp"

namespace railweave {

inline Bytes view(const nanobind::bytes& bytes) {
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}
inline nanobind::bytes to_python(Bytes bytes) { return nanobind::bytes(bytes.data(), bytes.size()); }

inline Secret secret_of(const nanobind::bytes& bytes) {
  if (bytes.size() != kSecretBytes)
    throw std::invalid_argument("a secret of " + std::to_string(bytes.size()) + " bytes; expected " +
                                std::to_string(kSecretBytes));
  Secret secret;
  std::memcpy(secret.data(), bytes.data(), secret.size());
  return secret;
}

inline std::array<std::uint8_t, 6> mac_of(const nanobind::bytes& bytes) {
  std::array<std::uint8_t, 6> mac;
  if (bytes.size() != mac.size()) throw nanobind::value_error("a MAC address has six bytes");
  std::memcpy(mac.data(), bytes.data(), mac.size());
  return mac;
}

inline Duration nanoseconds(double seconds) { return static_cast<Duration>(seconds * kSecond); }

/// "SEND_FIRST" for "kSendFirst".
inline std::string constant_name(std::string_view enumerator) {
  std::string name;
  for (std::size_t i = 1; i < enumerator.size(); ++i) {
    if (i > 1 && std::isupper(enumerator[i]) && std::islower(enumerator[i - 1])) name += '_';
    name += static_cast<char>(std::toupper(enumerator[i]));
  }
  return name;
}

/// Returns the count of a counter, and any other value unchanged.
template <typename T>
decltype(auto) plain(const T& value) {
  if constexpr (requires { value.get(); }) {
    return value.get();
  } else {
    return (value);
  }
}

/// A visitor for `.def`: calls `define` with the class.
template <typename Define>
struct Definition : nanobind::def_visitor<Definition<Define>> {
  Define define;
  explicit Definition(Define what) : define(what) {}
  template <typename Class, typename... Extra>
  void execute(Class& bound, const Extra&...) {
    define(bound);
  }
};

}  // namespace railweave

namespace nanobind::detail {

/// Converts a struct to a Python tuple of these members. Enums become numbers.
template <typename T, auto... members>
struct TupleCaster {
  template <typename M>
  using Plain =
      typename std::conditional_t<std::is_enum_v<M>, std::underlying_type<M>, std::type_identity<M>>::type;
  template <auto member>
  using Member = std::remove_cvref_t<decltype(std::declval<T>().*member)>;
  using Tuple = std::tuple<Plain<Member<members>>...>;
  using Caster = make_caster<Tuple>;
  NB_TYPE_CASTER(T, Caster::Name)

  bool from_python(handle from, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    Caster caster;
    if (!caster.from_python(from, flags, cleanup)) return false;
    std::apply(
        [this](auto&&... part) { ((value.*members = static_cast<Member<members>>(std::move(part))), ...); },
        caster.operator cast_t<Tuple>());
    return true;
  }
  static handle from_cpp(const T& from, rv_policy policy, cleanup_list* cleanup) noexcept {
    return Caster::from_cpp(Tuple(static_cast<Plain<Member<members>>>(from.*members)...), policy, cleanup);
  }
};

}  // namespace nanobind::detail

// f(with, name) for each of up to 64 names.
#define RAILWEAVE_EACH(f, with, ...) RAILWEAVE_SCAN(RAILWEAVE_STEP(f, with, __VA_ARGS__))
#define RAILWEAVE_STEP(f, with, name, ...) \
  f(with, name) __VA_OPT__(RAILWEAVE_NEXT RAILWEAVE_NOTHING()(f, with, __VA_ARGS__))
#define RAILWEAVE_NEXT() RAILWEAVE_STEP
#define RAILWEAVE_NOTHING
#define RAILWEAVE_SCAN(...) RAILWEAVE_SCAN3(RAILWEAVE_SCAN3(RAILWEAVE_SCAN3(RAILWEAVE_SCAN3(__VA_ARGS__))))
#define RAILWEAVE_SCAN3(...) RAILWEAVE_SCAN2(RAILWEAVE_SCAN2(RAILWEAVE_SCAN2(RAILWEAVE_SCAN2(__VA_ARGS__))))
#define RAILWEAVE_SCAN2(...) RAILWEAVE_SCAN1(RAILWEAVE_SCAN1(RAILWEAVE_SCAN1(RAILWEAVE_SCAN1(__VA_ARGS__))))
#define RAILWEAVE_SCAN1(...) __VA_ARGS__

// For `.def`: members to read, or to read and write, with their own names.
#define RAILWEAVE_RO(T, ...) \
  railweave::Definition([](auto& bound) { RAILWEAVE_EACH(RAILWEAVE_RO_ONE, T, __VA_ARGS__) })
#define RAILWEAVE_RW(T, ...) \
  railweave::Definition([](auto& bound) { RAILWEAVE_EACH(RAILWEAVE_RW_ONE, T, __VA_ARGS__) })
#define RAILWEAVE_RO_ONE(T, name) bound.def_ro(#name, &T::name);
#define RAILWEAVE_RW_ONE(T, name) bound.def_rw(#name, &T::name);

// Appends an enum's values to its nb::enum_, kSendFirst as SEND_FIRST.
#define RAILWEAVE_VALUES(T, ...) RAILWEAVE_EACH(RAILWEAVE_VALUE, T, __VA_ARGS__)
#define RAILWEAVE_VALUE(T, name) .value(railweave::constant_name(#name).c_str(), T::name)
#define RAILWEAVE_ENUM(m, T, ...) nanobind::enum_<T>(m, #T) RAILWEAVE_VALUES(T, __VA_ARGS__)

// Makes a dictionary of members of `from`, with their names as keys.
#define RAILWEAVE_DICT(from, ...)                     \
  [&] {                                               \
    nanobind::dict by_name;                           \
    RAILWEAVE_EACH(RAILWEAVE_ITEM, from, __VA_ARGS__) \
    return by_name;                                   \
  }()
#define RAILWEAVE_ITEM(from, name) by_name[#name] = railweave::plain(from.name);

// At global scope: converts T to a Python tuple of these members.
#define RAILWEAVE_TUPLE(T, ...)           \
  template <>                             \
  struct nanobind::detail::type_caster<T> \
      : nanobind::detail::TupleCaster<T RAILWEAVE_EACH(RAILWEAVE_MEMBER, T, __VA_ARGS__)> {};
#define RAILWEAVE_MEMBER(T, name) , &T::name
