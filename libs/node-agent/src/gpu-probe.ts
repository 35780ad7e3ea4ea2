import { execFile } from "node:child_process";
import type { Gpu } from "@heddle/contracts/generated/heddle/v1/Gpu";
import { GPU_FIELDS, parseGpus } from "./gpu-csv.ts";

const POLL_MS = 2_000;
const TIMEOUT_MS = 5_000;
/** After this many consecutive failures the machine has no usable GPU and is not probed again. */
const MAX_FAILURES = 3;

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
    const found = await queryGpus();
    if ("fault" in found) this.#failures += 1;
    else {
      this.#failures = 0;
      this.#gpus = found.gpus;
    }
    if (this.#failures > 0) this.#gpus = [];
    if (this.#stopped || this.#failures >= MAX_FAILURES) return;
    this.#timer = setTimeout(() => void this.#poll(), POLL_MS);
    this.#timer.unref();
  }
}

/** Runs nvidia-smi once: its devices, or why it gives none. */
export function queryGpus(): Promise<{ gpus: Gpu[] } | { fault: string }> {
  const options = { timeout: TIMEOUT_MS, killSignal: "SIGKILL" as const };
  return new Promise((resolve) => {
    execFile(
      "nvidia-smi",
      [`--query-gpu=${GPU_FIELDS}`, "--format=csv,noheader,nounits"],
      options,
      (error, stdout) => {
        if (!error) resolve({ gpus: parseGpus(stdout) });
        else if (error.killed) resolve({ fault: `it did not end within ${TIMEOUT_MS / 1_000} s` });
        else if (error.code === "ENOENT") resolve({ fault: "it is not installed" });
        else resolve({ fault: stdout.trim().split("\n")[0] || error.message.trim() });
      },
    );
  });
}
