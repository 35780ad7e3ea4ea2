import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Tokens a second of llama-bench on the same file; without the program it is left out. */
export async function benchPeer(program: string | undefined, modelPath: string, device: string) {
  if (program === undefined) return { skipped: "no --llama-bench was given" };
  const layers = device === "cpu" ? "0" : "99";
  const devices = device === "cpu" ? {} : { CUDA_VISIBLE_DEVICES: device };
  const flags = ["-m", modelPath, "-ngl", layers, "-p", "0", "-n", "128", "-r", "3", "-o", "json"];
  const { stdout } = await run(program, flags, {
    timeout: 300_000,
    maxBuffer: 16 << 20,
    env: { ...process.env, ...devices },
  });
  const rows = JSON.parse(stdout) as { readonly n_gen: number; readonly avg_ts: number }[];
  return { decode: rows.map(({ n_gen, avg_ts }) => ({ tokens: n_gen, tokens_per_s: avg_ts })) };
}
