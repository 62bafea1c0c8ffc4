// A pretend accelerator: a device of its own kind that refuses to meet the CPU and tells of all traffic with it.
//
// Its memory is the host's, but only its own kernels are given it.  A kernel is the CPU's, run on tensors that share
// the memory and carry the CPU's name; whatever comes out carries the device's name again.  So results are the CPU's,
// bit by bit, wherever the code under test runs the same operations on both.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <mutex>
#include <set>
#include <unordered_map>

namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using c10::Storage;
using c10::TensorImpl;
constexpr auto kDevice = c10::DeviceType::PrivateUse1;

const c10::Device here(kDevice, 0);

// ---- what is told to the tests -------------------------------------------------------------------------------------

using Watch = void (*)(const char* kind, const char* op);
std::atomic<Watch> watch{nullptr};
std::atomic<bool> float64{true};

void tell(const char* kind, const std::string& op) {
  if (Watch w = watch.load()) w(kind, op.c_str());
}

void check_dtype(c10::ScalarType dtype) {
  TORCH_CHECK_TYPE(float64 || (dtype != at::kDouble && dtype != at::kComplexDouble), "this device has no float64");
}

// ---- memory --------------------------------------------------------------------------------------------------------

void release(void* context) { delete static_cast<Storage*>(context); }

// The same bytes under the name of another device; the storage that owns them is kept alive.
Storage renamed(const Storage& storage, c10::Device as, c10::Allocator* allocator) {
  auto* owner = new Storage(storage);
  c10::DataPtr data(const_cast<void*>(storage.data()), owner, &release, as);
  return Storage(Storage::use_byte_size_t(), storage.nbytes(), std::move(data), allocator, /*resizable=*/true);
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto data = c10::GetCPUAllocator()->allocate(bytes);
    data.unsafe_set_device(here);
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return c10::GetCPUAllocator()->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
};
Memory memory;

std::mutex pinned_lock;
std::set<const void*> pinned;

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::GetCPUAllocator()->raw_allocate(bytes ? bytes : 1);
    std::lock_guard<std::mutex> guard(pinned_lock);
    pinned.insert(data);
    return {data, data, &give_back, c10::Device(c10::kCPU)};
  }
  static void give_back(void* data) {
    {
      std::lock_guard<std::mutex> guard(pinned_lock);
      pinned.erase(data);
    }
    c10::GetCPUAllocator()->raw_deallocate(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
};
PinnedMemory pinned_memory;

// ---- random numbers ------------------------------------------------------------------------------------------------

struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::intrusive_ptr<c10::GeneratorImpl> host)
      : GeneratorImpl(here, DispatchKeySet(DispatchKey::PrivateUse1)), host(std::move(host)) {}
  void set_current_seed(uint64_t seed) override { host->set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host->set_offset(offset); }
  uint64_t get_offset() const override { return host->get_offset(); }
  uint64_t current_seed() const override { return host->current_seed(); }
  uint64_t seed() override { return host->seed(); }
  void set_state(const c10::TensorImpl& state) override { host->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host->get_state(); }
  Generator* clone_impl() const override { return new Generator(host->clone()); }
  c10::intrusive_ptr<c10::GeneratorImpl> host;
};

at::Generator new_generator() {
  return at::make_generator<Generator>(c10::make_intrusive<at::CPUGeneratorImpl>(c10::default_rng_seed_val));
}

// The first one that is asked for: Python makes it, and keeps a hold of it.
at::Generator default_generator;

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return default_generator; }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    auto made = new_generator();
    if (!default_generator.defined()) default_generator = made;
    return made;
  }
  c10::Device getDeviceFromPtr(void*) const override { return here; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  bool isPinnedPtr(const void* data) const override {
    std::lock_guard<std::mutex> guard(pinned_lock);
    return pinned.count(data) > 0;
  }
};

// ---- one device, one stream, nothing to wait for ------------------------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return here; }
  c10::Device getDevice() const override { return here; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, here); }
  c10::Stream getDefaultStream(c10::Device) const override { return getStream(here); }
  c10::Stream exchangeStream(c10::Stream) const override { return getStream(here); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { tell("read", "synchronize"); }
  void synchronizeEvent(void*) const override { tell("read", "synchronize"); }
  void synchronizeDevice(const c10::DeviceIndex) const override { tell("read", "synchronize"); }
};

// ---- kernels -------------------------------------------------------------------------------------------------------

Tensor tensor_like(Storage storage, const Tensor& like, DispatchKey key) {
  auto out = at::detail::make_tensor<TensorImpl>(std::move(storage), DispatchKeySet(key), like.dtype());
  auto* impl = out.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides());
  impl->set_storage_offset(like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return out;
}

// One call of a CPU kernel: which tensor stands for which, in both directions.
struct Call {
  std::unordered_map<const c10::StorageImpl*, Storage> host_of, device_of;
  std::unordered_map<const TensorImpl*, Tensor> original;
  std::vector<std::pair<Tensor, Tensor>> written;  // ours, and the CPU's that stood for it

  Storage to_host(const Storage& storage) {
    auto found = host_of.find(storage.unsafeGetStorageImpl());
    if (found != host_of.end()) return found->second;
    auto host = renamed(storage, c10::Device(c10::kCPU), c10::GetCPUAllocator());
    device_of.emplace(host.unsafeGetStorageImpl(), storage);
    host_of.emplace(storage.unsafeGetStorageImpl(), host);
    return host;
  }

  Tensor to_host(const Tensor& x) {
    check_dtype(x.scalar_type());
    auto host = tensor_like(to_host(x.storage()), x, DispatchKey::CPU);
    original.emplace(host.unsafeGetTensorImpl(), x);
    return host;
  }

  Tensor to_device(const Tensor& host) {
    auto same = original.find(host.unsafeGetTensorImpl());
    if (same != original.end()) return same->second;
    check_dtype(host.scalar_type());
    auto view = device_of.find(host.storage().unsafeGetStorageImpl());
    auto storage = view != device_of.end() ? view->second : renamed(host.storage(), here, &memory);
    return tensor_like(std::move(storage), host, DispatchKey::PrivateUse1);
  }

  // What was written to may have another size now, other memory (resize_) or another storage (set_).
  void settle() {
    for (auto& [ours, host] : written) {
      auto storage = device_of.find(host.storage().unsafeGetStorageImpl());
      if (storage != device_of.end() && !storage->second.is_alias_of(ours.storage())) {
        ours.unsafeGetTensorImpl()->set_storage_keep_dtype(storage->second);
      } else if (!host.storage().data() || host.storage().data() != ours.storage().data()) {
        auto* impl = ours.storage().unsafeGetStorageImpl();
        auto moved = renamed(host.storage(), here, &memory);
        impl->set_data_ptr_noswap(c10::DataPtr(
            const_cast<void*>(moved.data()), new Storage(moved), &release, here));
        impl->set_nbytes(host.storage().nbytes());
      }
      if (ours.sizes() != host.sizes() || ours.strides() != host.strides()) {
        ours.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
        ours.unsafeGetTensorImpl()->set_storage_offset(host.storage_offset());
      }
    }
  }
};

bool is_ours(const Tensor& x) { return x.defined() && x.device().type() == kDevice; }

// Of the CPU a kernel takes a single number at most, as CUDA's do.
void refuse(const Tensor& x, const std::string& op, bool in_list) {
  TORCH_CHECK(
      x.is_cpu() && x.dim() == 0 && !in_list, op, ": expected all tensors to be on the same device, got pretend:0 and ",
      x.device(), " of shape ", x.sizes());
}

const std::set<std::string> waits = {  // CUDA's kernels of these names read a number back
    "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique", "aten::_unique2",
    "aten::unique_dim", "aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::equal", "aten::bincount",
    "aten::linalg_lstsq", "aten::histc", "aten::_linalg_eigh", "aten::_linalg_svd", "aten::linalg_eig"};

bool reads(const std::string& op, c10::ArrayRef<IValue> args) {
  if (waits.count(op)) return true;
  if (op == "aten::repeat_interleave") return args.back().isNone();
  if (op != "aten::_index_put_impl_" || args[2].toTensor().numel() == 1) return false;
  for (const auto& index : args[1].toListRef())
    if (index.isTensor() && index.toTensor().defined() && index.toTensor().scalar_type() == at::kBool) return true;
  return false;
}

void kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& name = schema.name();
  const auto count = schema.arguments().size();
  const auto begin = stack->size() - count;
  if (reads(name, c10::ArrayRef<IValue>(*stack).slice(begin))) tell("read", name);

  Call call;
  for (size_t i = 0; i < count; ++i) {
    IValue& value = (*stack)[begin + i];
    const auto* alias = schema.arguments()[i].alias_info();
    const bool write = alias && alias->isWrite();
    auto stand_in = [&](const Tensor& x, bool in_list) {
      if (!x.defined()) return x;
      if (!is_ours(x)) return refuse(x, name, in_list), x;
      auto host = call.to_host(x);
      if (write) call.written.emplace_back(x, host);
      return host;
    };
    if (value.isTensor()) {
      value = stand_in(value.toTensor(), false);
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor x : value.toTensorList()) list.push_back(stand_in(x, true));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor> x : value.toOptionalTensorList())
        list.push_back(x ? std::optional<Tensor>(stand_in(*x, true)) : x);
      value = std::move(list);
    } else if (value.isStorage()) {
      value = call.to_host(value.toStorage());
    } else if (schema.arguments()[i].name() == "generator") {
      auto given = value.isNone() ? default_generator : value.toGenerator();
      TORCH_CHECK(given.device().type() == kDevice, name, ": expected a generator on pretend, got one on ", given.device());
      value = at::Generator(given.get<Generator>()->host);
    } else if (value.isDevice() && value.toDevice().type() == kDevice) {
      value = c10::Device(c10::kCPU);
    }
  }
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(DispatchKeySet(DispatchKey::CPU), stack);
  }
  call.settle();
  const auto outs = schema.returns().size();
  for (size_t i = stack->size() - outs; i < stack->size(); ++i) {
    IValue& value = (*stack)[i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) value = call.to_device(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor x : value.toTensorList()) list.push_back(call.to_device(x));
      value = std::move(list);
    }
  }
}

Tensor empty(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>, std::optional<c10::Device>,
    std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  check_dtype(c10::dtype_or_default(dtype));
  return Tensor(at::detail::empty_generic(
      size, &memory, DispatchKeySet(DispatchKey::PrivateUse1), c10::dtype_or_default(dtype), format));
}

Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device>, std::optional<bool>) {
  check_dtype(c10::dtype_or_default(dtype));
  return Tensor(at::detail::empty_strided_generic(
      size, stride, &memory, DispatchKeySet(DispatchKey::PrivateUse1), c10::dtype_or_default(dtype)));
}

Tensor copy(const Tensor& from, const Tensor& to, bool non_blocking) {
  if (!is_ours(to)) tell("read", "copy to the host");
  if (!is_ours(from)) tell(non_blocking && from.is_pinned() ? "copy" : "blocking copy", "copy to the device");
  Call call;
  auto host_to = is_ours(to) ? call.to_host(to) : to;
  host_to.copy_(is_ours(from) ? call.to_host(from) : from);
  return to;
}

int64_t attention(
    const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool, std::optional<double>, bool) {
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

}  // namespace

namespace at {
REGISTER_ALLOCATOR(kDevice, &memory)
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)
}  // namespace at

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &attention)
}  // namespace at::native

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy);
  // Composites that want a kernel of the device's own, or that write a result of another size than they made room for.
  for (const char* name : {"convolution", "convolution_backward", "mse_loss", "smooth_l1_loss"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&kernel>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(OP) KERNEL_PRIVATEUSEONE(OP, lower_precision_fp)
#define FLOAT(OP) KERNEL_PRIVATEUSEONE(OP, fp32)
  LOWER(matmul) LOWER(mm) LOWER(bmm) LOWER(addmm) LOWER(baddbmm) LOWER(linear) LOWER(conv1d)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  FLOAT(exp) FLOAT(log) FLOAT(layer_norm) FLOAT(nll_loss) FLOAT(cosine_similarity) FLOAT(mse_loss) FLOAT(cdist)
  KERNEL_PRIVATEUSEONE(softmax, int, fp32_set_opt_dtype)
  KERNEL_PRIVATEUSEONE(log_softmax, int, fp32_set_opt_dtype)
  KERNEL_PRIVATEUSEONE(sum, fp32_set_opt_dtype)
  KERNEL_PRIVATEUSEONE(prod, fp32_set_opt_dtype)
}

extern "C" {
void pretend_start() { at::RegisterPrivateUse1HooksInterface(new Hooks()); }
void pretend_watch(Watch w) { watch = w; }
void pretend_float64(bool allowed) { float64 = allowed; }
}
