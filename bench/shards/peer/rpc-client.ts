import { join } from "node:path";
import { createInterface } from "node:readline";
import { Batch, rowMemory } from "@heddle/engines/llama/engine-thread/batch";
import { openBindings } from "@heddle/engines/llama/native/bindings";
import { setDevices } from "@heddle/engines/llama/native/device-split";
import { findNativeLibrary } from "@heddle/engines/llama/native/native-library";
import koffi from "koffi";

// A whole model whose layers are on servers of ggml's RPC. Its argument is one JSON text. Each line that
// it reads has an id, a number of sequences and one of steps; it prints the tokens a second for each.

interface Asked {
  readonly libraries: string;
  readonly modelFile: string;
  readonly servers: readonly string[];
  readonly maxSequences: number;
  readonly promptTokens: number;
  readonly kvTokens: number;
}

const asked = JSON.parse(process.argv[2] ?? "{}") as Asked;
const BATCH_TOKENS = 512;
const own = findNativeLibrary("cpu");
const at = (path: string) => join(asked.libraries, path.slice(own.directory.length + 1));
const library = {
  ...own,
  directory: asked.libraries,
  ggmlPath: at(own.ggmlPath),
  llamaPath: at(own.llamaPath),
};
const { llama, ggml, silentLog } = openBindings(library);
llama.log_set(silentLog, null);
ggml.load_all_from_path(library.directory);
llama.backend_init();
const base = koffi.load(join(asked.libraries, "libggml-base.so"));
const rpc = koffi.load(join(asked.libraries, "libggml-rpc.so"));
const addServer = rpc.func("void* ggml_backend_rpc_add_server(const char* address)");
const deviceOf = base.func("void* ggml_backend_reg_dev_get(void* backend, size_t index)");
const devices = asked.servers.map((server) => {
  const device: unknown = deviceOf(addServer(server), 0);
  return typeof device === "bigint" ? device : (koffi.address(device) as bigint);
});

const params = llama.model_default_params();
setDevices(params, devices, { mode: "layer", shares: devices.map(() => 1), mainGpu: 0 });
params.n_gpu_layers = 999;
const model = llama.model_load_from_file(asked.modelFile, params);
if (model === null) throw new Error("the model could not be loaded over RPC");
const context = llama.init_from_model(
  model,
  Object.assign(llama.context_default_params(), {
    n_ctx: asked.kvTokens,
    n_batch: BATCH_TOKENS,
    n_ubatch: BATCH_TOKENS,
    n_seq_max: asked.maxSequences,
    n_threads: 1,
    n_threads_batch: 1,
    flash_attn_type: 1,
    kv_unified: true,
  }),
);
if (context === null) throw new Error("the model got no context over RPC");
const memory = llama.get_memory(context);
const vocabulary = llama.vocab_n_tokens(llama.model_get_vocab(model));
const batch = new Batch(BATCH_TOKENS, asked.maxSequences, rowMemory(BATCH_TOKENS, 1));

interface Row {
  readonly token: number;
  readonly position: number;
  readonly sequence: number;
  readonly output: boolean;
}

/** The greedy tokens of the rows with an output. */
function decode(rows: readonly Row[]): number[] {
  batch.clear();
  for (const { token, position, sequence, output } of rows) {
    batch.add(token, position, sequence, output);
  }
  const code = llama.decode(context, batch.struct);
  if (code !== 0) throw new Error(`a decode over RPC ended with ${code}`);
  const outputs = rows.filter(({ output }) => output).length;
  const logits = new Float32Array(koffi.view(llama.get_logits(context), outputs * vocabulary * 4));
  return Array.from({ length: outputs }, (_, output) => {
    const row = logits.subarray(output * vocabulary, (output + 1) * vocabulary);
    return row.reduce((best, value, token) => (value > row[best]! ? token : best), 0);
  });
}

function rate(sequences: number, steps: number): number {
  llama.memory_seq_rm(memory, -1, -1, -1);
  const tokens = Array.from({ length: sequences }, (_, sequence) => {
    const rows = Array.from({ length: asked.promptTokens }, (__, position) => ({
      token: 1_000 + ((sequence * 977 + position * 131) % 20_000),
      position,
      sequence,
      output: position === asked.promptTokens - 1,
    }));
    return decode(rows)[0] ?? 0;
  });
  const startMs = performance.now();
  for (let step = 0; step < steps; step++) {
    const position = asked.promptTokens + step;
    const rows = tokens.map((token, sequence) => ({ token, position, sequence, output: true }));
    for (const [sequence, token] of decode(rows).entries()) tokens[sequence] = token;
  }
  return (sequences * steps * 1_000) / (performance.now() - startMs);
}

console.log("loaded");
for await (const line of createInterface({ input: process.stdin })) {
  const [id, sequences = 0, steps = 0] = line.split(" ").map(Number);
  console.log(`rate ${id} ${rate(sequences, steps)}`);
}
// An ordinary exit would run the destructors of native code.
process.kill(process.pid, "SIGKILL");
