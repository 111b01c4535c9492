/* What the host library uses of the CUDA driver API (cuda.h of CUDA 12.0 and later): types, constants, functions. */
#ifndef CUVIL_GPU_DRIVER_H
#define CUVIL_GPU_DRIVER_H

#include <stddef.h>

typedef int cu_result, cu_device;
typedef struct cu_context_ *cu_context;
typedef struct cu_stream_ *cu_stream;
typedef struct cu_event_ *cu_event;
typedef struct cu_module_ *cu_module;
typedef struct cu_function_ *cu_function;
typedef struct cu_graph_ *cu_graph;
typedef struct cu_graph_exec_ *cu_graph_exec;
typedef unsigned long long cu_pointer;

enum {
    CU_OUT_OF_MEMORY = 2,
    CU_NO_DEVICE = 100,
    CU_INVALID_IMAGE = 200,
    CU_NO_BINARY_FOR_GPU = 209,
    CU_INVALID_PTX = 218,
    CU_UNSUPPORTED_PTX_VERSION = 222,
    CU_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_COMPUTE_CAPABILITY_MINOR = 76,
    CU_MAX_DYNAMIC_SHARED_BYTES = 8,
    CU_NON_PORTABLE_CLUSTER_ALLOWED = 14,
    CU_STREAM_NON_BLOCKING = 1,
    CU_CAPTURE_THREAD_LOCAL = 1,
    CU_LAUNCH_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};

/* CUlaunchAttribute: 8 bytes up to the value, which has 64. */
typedef struct {
    int id;
    char pad[8 - sizeof(int)];
    union {
        char room[64];
        struct {
            unsigned x, y, z;
        } cluster;
        int programmatic;
    } value;
} cu_launch_attribute;

typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    cu_stream stream;
    cu_launch_attribute *attributes;
    unsigned attribute_count;
} cu_launch_config;

#define CUVIL_DRIVER_FUNCTIONS(X) \
    X(Init, (unsigned flags)) \
    X(DriverGetVersion, (int *version)) \
    X(GetErrorName, (cu_result result, const char **name)) \
    X(DeviceGetCount, (int *count)) \
    X(DeviceGet, (cu_device *device, int ordinal)) \
    X(DeviceGetName, (char *name, int length, cu_device device)) \
    X(DeviceGetAttribute, (int *value, int attribute, cu_device device)) \
    X(DevicePrimaryCtxRetain, (cu_context *context, cu_device device)) \
    X(CtxPushCurrent, (cu_context context)) \
    X(CtxPopCurrent, (cu_context *context)) \
    X(ModuleLoadDataEx, (cu_module *module, const void *image, unsigned options, int *names, void **values)) \
    X(ModuleGetFunction, (cu_function *function, cu_module module, const char *name)) \
    X(FuncSetAttribute, (cu_function function, int attribute, int value)) \
    X(MemAlloc, (cu_pointer *pointer, size_t bytes)) \
    X(MemsetD8, (cu_pointer pointer, unsigned char value, size_t bytes)) \
    X(MemcpyHtoD, (cu_pointer to, const void *from, size_t bytes)) \
    X(MemcpyHtoDAsync, (cu_pointer to, const void *from, size_t bytes, cu_stream stream)) \
    X(MemcpyDtoHAsync, (void *to, cu_pointer from, size_t bytes, cu_stream stream)) \
    X(MemHostRegister, (void *memory, size_t bytes, unsigned flags)) \
    X(MemHostGetDevicePointer, (cu_pointer *pointer, void *memory, unsigned flags)) \
    X(StreamCreate, (cu_stream *stream, unsigned flags)) \
    X(StreamSynchronize, (cu_stream stream)) \
    X(StreamWriteValue32, (cu_stream stream, cu_pointer to, unsigned value, unsigned flags)) \
    X(StreamBeginCapture, (cu_stream stream, int mode)) \
    X(StreamEndCapture, (cu_stream stream, cu_graph *graph)) \
    X(GraphInstantiateWithFlags, (cu_graph_exec *exec, cu_graph graph, unsigned long long flags)) \
    X(GraphLaunch, (cu_graph_exec exec, cu_stream stream)) \
    X(LaunchKernelEx, (const cu_launch_config *config, cu_function function, void **arguments, void **extra)) \
    X(EventCreate, (cu_event *event, unsigned flags)) \
    X(EventRecord, (cu_event event, cu_stream stream)) \
    X(EventElapsedTime, (float *milliseconds, cu_event start, cu_event end))

/* Names in the library: some carry the number of the version whose types these are. */
#define CUVIL_DRIVER_NAME(name) CUVIL_DRIVER_NAME_##name
#define CUVIL_DRIVER_NAME_Init "cuInit"
#define CUVIL_DRIVER_NAME_DriverGetVersion "cuDriverGetVersion"
#define CUVIL_DRIVER_NAME_GetErrorName "cuGetErrorName"
#define CUVIL_DRIVER_NAME_DeviceGetCount "cuDeviceGetCount"
#define CUVIL_DRIVER_NAME_DeviceGet "cuDeviceGet"
#define CUVIL_DRIVER_NAME_DeviceGetName "cuDeviceGetName"
#define CUVIL_DRIVER_NAME_DeviceGetAttribute "cuDeviceGetAttribute"
#define CUVIL_DRIVER_NAME_DevicePrimaryCtxRetain "cuDevicePrimaryCtxRetain"
#define CUVIL_DRIVER_NAME_CtxPushCurrent "cuCtxPushCurrent_v2"
#define CUVIL_DRIVER_NAME_CtxPopCurrent "cuCtxPopCurrent_v2"
#define CUVIL_DRIVER_NAME_ModuleLoadDataEx "cuModuleLoadDataEx"
#define CUVIL_DRIVER_NAME_ModuleGetFunction "cuModuleGetFunction"
#define CUVIL_DRIVER_NAME_FuncSetAttribute "cuFuncSetAttribute"
#define CUVIL_DRIVER_NAME_MemAlloc "cuMemAlloc_v2"
#define CUVIL_DRIVER_NAME_MemsetD8 "cuMemsetD8_v2"
#define CUVIL_DRIVER_NAME_MemcpyHtoD "cuMemcpyHtoD_v2"
#define CUVIL_DRIVER_NAME_MemcpyHtoDAsync "cuMemcpyHtoDAsync_v2"
#define CUVIL_DRIVER_NAME_MemcpyDtoHAsync "cuMemcpyDtoHAsync_v2"
#define CUVIL_DRIVER_NAME_MemHostRegister "cuMemHostRegister_v2"
#define CUVIL_DRIVER_NAME_MemHostGetDevicePointer "cuMemHostGetDevicePointer_v2"
#define CUVIL_DRIVER_NAME_StreamCreate "cuStreamCreate"
#define CUVIL_DRIVER_NAME_StreamSynchronize "cuStreamSynchronize"
#define CUVIL_DRIVER_NAME_StreamWriteValue32 "cuStreamWriteValue32_v2"
#define CUVIL_DRIVER_NAME_StreamBeginCapture "cuStreamBeginCapture_v2"
#define CUVIL_DRIVER_NAME_StreamEndCapture "cuStreamEndCapture"
#define CUVIL_DRIVER_NAME_GraphInstantiateWithFlags "cuGraphInstantiateWithFlags"
#define CUVIL_DRIVER_NAME_GraphLaunch "cuGraphLaunch"
#define CUVIL_DRIVER_NAME_LaunchKernelEx "cuLaunchKernelEx"
#define CUVIL_DRIVER_NAME_EventCreate "cuEventCreate"
#define CUVIL_DRIVER_NAME_EventRecord "cuEventRecord"
#define CUVIL_DRIVER_NAME_EventElapsedTime "cuEventElapsedTime"

#endif
