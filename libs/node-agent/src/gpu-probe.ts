import { execFile } from "node:child_process";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";
import { gpuFields, parseGpus } from "./gpu-csv.ts";

const pollMs = 2_000;
const timeoutMs = 5_000;
/** After this many consecutive failures the machine has no usable GPU and is not probed again. */
const maxFailures = 3;

/** The NVIDIA GPUs of this machine as nvidia-smi reports them; none if it is absent. */
export class GpuProbe {
  #gpus: readonly Gpu[] = [];
  #failures = 0;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  get gpus(): readonly Gpu[] {
    return this.#gpus;
  }

  /** Resolves after the first result; polling continues, one at a time, until `stop`. */
  async start(): Promise<void> {
    await this.#poll();
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  async #poll(): Promise<void> {
    const text = await queryTool();
    if (text === undefined) this.#failures += 1;
    else {
      this.#failures = 0;
      this.#gpus = parseGpus(text);
    }
    if (this.#failures > 0) this.#gpus = [];
    if (this.#stopped || this.#failures >= maxFailures) return;
    this.#timer = setTimeout(() => void this.#poll(), pollMs);
    this.#timer.unref();
  }
}

function queryTool(): Promise<string | undefined> {
  const options = { timeout: timeoutMs, killSignal: "SIGKILL" as const };
  return new Promise((resolve) => {
    execFile(
      "nvidia-smi",
      [`--query-gpu=${gpuFields}`, "--format=csv,noheader,nounits"],
      options,
      (error, stdout) => resolve(error ? undefined : stdout),
    );
  });
}
