import { readdirSync } from "node:fs";
import { join } from "node:path";
import koffi from "koffi";

// One server of ggml's RPC, with the CPU as its device: LIBRARIES ADDRESS. It never returns.

const CPU = 0;
const THREADS = 1;
const [libraries = "", address = ""] = process.argv.slice(2);
const ggmlFile = readdirSync(libraries).find((file) => /^libggml\.v.*\.so$/.test(file)) ?? "";
const ggml = koffi.load(join(libraries, ggmlFile));
ggml.func("void ggml_backend_load_all_from_path(const char* directory)")(libraries);
const device: unknown = ggml.func("void* ggml_backend_dev_by_type(int type)")(CPU);
const devices: unknown = koffi.alloc("void*", 1);
koffi.encode(devices, "void*", device);
const start = koffi
  .load(join(libraries, "libggml-rpc.so"))
  .func(
    "void ggml_backend_rpc_start_server(const char* address, const char* cache, size_t threads, size_t count, void* devices)",
  );
console.log("serving");
start(address, null, THREADS, 1, devices);
