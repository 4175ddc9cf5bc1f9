//! Streams, events, recordings and copies.

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "driver.h"

/// Work in its order, of a recording.
struct CUgraph_st {
    std::vector<emulated::Work> work;
};
struct CUgraphExec_st {
    std::vector<emulated::Work> work;
};

struct CUstream_st {
    std::deque<emulated::Work> waiting;
    uint64_t asked = 0, done = 0;
    std::unique_ptr<CUgraph_st> recording;
    bool spoilt = false;
};

struct CUevent_st {
    CUstream stream = nullptr;
    /// How much of the stream's work it stands behind.
    uint64_t behind = 0;
};

namespace emulated {
namespace {

CUstream_st legacy;
std::set<CUstream> streams = {&legacy};

CUstream known(CUstream stream) {
    if (!stream) return &legacy;
    if (!streams.count(stream)) broken("a stream that does not exist");
    return stream;
}

void finish_up_to(CUstream stream, uint64_t count) {
    while (stream->done < count) {
        Work next = std::move(stream->waiting.front());
        stream->waiting.pop_front();
        stream->done++;
        runs_on_device("a copy or an allocation");
        next();
        runs_on_device(nullptr);
    }
}

}  // namespace

bool is_capturing(CUstream stream) { return known(stream)->recording != nullptr; }

bool spoils_capture(CUstream stream) {
    if (!is_capturing(stream)) return false;
    known(stream)->spoilt = true;
    return true;
}

bool spoils_any_capture() {
    bool any = false;
    for (CUstream stream : streams) any |= spoils_capture(stream);
    return any;
}

CUresult enqueue(CUstream stream, Work work) {
    CUstream to = known(stream);
    if (to->recording) {
        if (to->spoilt) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        to->recording->work.push_back(std::move(work));
        return CUDA_SUCCESS;
    }
    to->waiting.push_back(std::move(work));
    to->asked++;
    return CUDA_SUCCESS;
}

void finish(CUstream stream) {
    finish_up_to(known(stream), known(stream)->asked);
    give_back_freed();
}

void finish_all() {
    for (CUstream stream : streams) finish(stream);
}

namespace {

/// On the device, or pinned: a copy may take place later.
bool waits(uintptr_t address, size_t bytes) { return reachable(address, bytes); }

CUresult copy(const char* who, uintptr_t to, uintptr_t from, size_t bytes, CUstream stream) {
    if (bytes == 0) return CUDA_SUCCESS;
    auto move = [to, from, bytes] { memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); };
    if (waits(to, bytes) && waits(from, bytes)) return enqueue(stream, move);
    if (is_capturing(stream)) broken("%s of memory that is not pinned, in a recording", who);
    if (waits(to, bytes)) {
        // The driver has read memory that is not pinned when it returns.
        auto* bytes_of_host = reinterpret_cast<unsigned char*>(from);
        std::vector<unsigned char> kept(bytes_of_host, bytes_of_host + bytes);
        return enqueue(stream, [to, kept = std::move(kept)] {
            memcpy(reinterpret_cast<void*>(to), kept.data(), kept.size());
        });
    }
    // And has written it.
    finish(stream);
    move();
    return CUDA_SUCCESS;
}

CUresult up(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    if (bytes) check_reachable("a copy to the device", to, bytes);
    return copy("a copy to the device", to, reinterpret_cast<uintptr_t>(from), bytes, stream);
}

CUresult down(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (bytes) check_reachable("a copy from the device", from, bytes);
    return copy("a copy from the device", reinterpret_cast<uintptr_t>(to), from, bytes, stream);
}

CUresult across(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (bytes) check_reachable("a copy on the device, to", to, bytes);
    if (bytes) check_reachable("a copy on the device, from", from, bytes);
    return copy("a copy on the device", to, from, bytes, stream);
}

CUresult fill(CUdeviceptr to, unsigned char with, size_t bytes, CUstream stream) {
    if (bytes == 0) return CUDA_SUCCESS;
    check_reachable("a memset", to, bytes);
    return enqueue(stream, [to, with, bytes] { memset(reinterpret_cast<void*>(to), with, bytes); });
}

/// The calls that wait.
template <typename Call>
CUresult at_once(Call call) {
    Guard guard(lock());
    if (spoils_any_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    const CUresult result = call();
    finish(nullptr);
    return result;
}

}  // namespace
}  // namespace emulated

using namespace emulated;

extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned) {
    Guard guard(lock());
    *stream = new CUstream_st;
    streams.insert(*stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }

CUresult cuStreamDestroy(CUstream stream) {
    Guard guard(lock());
    finish(stream);
    streams.erase(stream);
    delete stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    Guard guard(lock());
    if (spoils_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    finish(stream);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
    Guard guard(lock());
    if (spoils_any_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    finish_all();
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
    *event = new CUevent_st;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
    delete event;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    Guard guard(lock());
    if (spoils_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    event->stream = known(stream);
    event->behind = event->stream->asked;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
    Guard guard(lock());
    if (event->stream && streams.count(event->stream)) finish_up_to(event->stream, event->behind);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
    Guard guard(lock());
    const bool open = event->stream && streams.count(event->stream) && event->stream->done < event->behind;
    return open ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    Guard guard(lock());
    if (spoils_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    const CUevent_st before = *event;
    return enqueue(stream, [before] {
        if (before.stream && streams.count(before.stream)) finish_up_to(before.stream, before.behind);
    });
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    Guard guard(lock());
    return up(to, from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    Guard guard(lock());
    return down(to, from, bytes, stream);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    Guard guard(lock());
    return across(to, from, bytes, stream);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
    return at_once([=] { return up(to, from, bytes, nullptr); });
}

CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
    return at_once([=] { return down(to, from, bytes, nullptr); });
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return at_once([=] { return across(to, from, bytes, nullptr); });
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char with, size_t bytes, CUstream stream) {
    Guard guard(lock());
    return fill(to, with, bytes, stream);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char with, size_t bytes) {
    return at_once([=] { return fill(to, with, bytes, nullptr); });
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
    Guard guard(lock());
    if (!stream || is_capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
    stream->recording = std::make_unique<CUgraph_st>();
    stream->spoilt = false;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    Guard guard(lock());
    if (!is_capturing(stream)) return CUDA_ERROR_ILLEGAL_STATE;
    std::unique_ptr<CUgraph_st> recorded = std::move(stream->recording);
    *graph = stream->spoilt ? nullptr : recorded.release();
    return stream->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    Guard guard(lock());
    const bool spoilt = is_capturing(stream) && stream->spoilt;
    *status = spoilt                 ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
              : is_capturing(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                     : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* playable, CUgraph graph, unsigned long long) {
    *playable = new CUgraphExec_st{graph->work};
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }

CUresult cuGraphLaunch(CUgraphExec playable, CUstream stream) {
    Guard guard(lock());
    for (const Work& work : playable->work) enqueue(stream, work);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec playable) {
    Guard guard(lock());
    finish_all();
    delete playable;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    delete graph;
    return CUDA_SUCCESS;
}

}  // extern "C"
