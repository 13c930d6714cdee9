// SPDX-License-Identifier: Apache-2.0
#if __has_include(<infiniband/verbs.h>)
#include "rails/verbs_library.hpp"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace railweave {
namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr)
    throw std::runtime_error(std::string(kLibrary) + " is too old: expected one with " + name +
                             "; install a newer libibverbs");
}

// Never unloaded: providers start threads and keep state of their own.
VerbsLibrary load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw std::runtime_error(std::string("no libibverbs (") + dlerror() + "): expected " + kLibrary +
                             "; install it (Debian: libibverbs1, ibverbs-providers)");
  VerbsLibrary api{};
  find(library, "ibv_get_device_list", api.get_device_list);
  find(library, "ibv_free_device_list", api.free_device_list);
  find(library, "ibv_get_device_name", api.get_device_name);
  find(library, "ibv_open_device", api.open_device);
  find(library, "ibv_close_device", api.close_device);
  find(library, "_ibv_query_gid_table", api.query_gid_table);
  find(library, "ibv_alloc_pd", api.alloc_pd);
  find(library, "ibv_dealloc_pd", api.dealloc_pd);
  find(library, "ibv_reg_mr", api.reg_mr);
  find(library, "ibv_dereg_mr", api.dereg_mr);
  find(library, "ibv_create_comp_channel", api.create_comp_channel);
  find(library, "ibv_destroy_comp_channel", api.destroy_comp_channel);
  find(library, "ibv_create_cq", api.create_cq);
  find(library, "ibv_destroy_cq", api.destroy_cq);
  find(library, "ibv_get_cq_event", api.get_cq_event);
  find(library, "ibv_ack_cq_events", api.ack_cq_events);
  find(library, "ibv_create_qp", api.create_qp);
  find(library, "ibv_modify_qp", api.modify_qp);
  find(library, "ibv_destroy_qp", api.destroy_qp);
  find(library, "ibv_get_async_event", api.get_async_event);
  find(library, "ibv_ack_async_event", api.ack_async_event);
  find(library, "ibv_event_type_str", api.event_type_str);
  find(library, "ibv_wc_status_str", api.wc_status_str);
  return api;
}

}  // namespace

const VerbsLibrary& verbs() {
  static const VerbsLibrary api = load();
  return api;
}

}  // namespace railweave
#endif
