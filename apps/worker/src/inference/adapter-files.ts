import { AppError } from "@heddle/base/errors";
import type { WeightsSpec } from "@heddle/contracts/engine";
import { readGguf } from "@heddle/engines/gguf/gguf-reader";
import type { WeightsPuller } from "./engine-ports.ts";

/** The most adapter files that a replica remembers; an engine may load fewer. */
const MAX_FILES = 256;

/** The files of LoRA adapters, pulled at the first request that names them. */
export class AdapterFiles {
  readonly #pull: WeightsPuller;
  readonly #signal: AbortSignal;
  readonly #files = new Map<string, Promise<string>>();

  /** `signal` ends the pulls. */
  constructor(pull: WeightsPuller, signal: AbortSignal) {
    this.#pull = pull;
    this.#signal = signal;
  }

  /** The path of the file; rejects with an AppError, after which it is tried again. */
  pathOf(weights: WeightsSpec): Promise<string> {
    const key = `${weights.key} ${weights.sha256 ?? weights.sources.join(" ")}`;
    const known = this.#files.get(key);
    if (known !== undefined) return known;
    const [oldest] = this.#files.keys();
    if (oldest !== undefined && this.#files.size >= MAX_FILES) this.#files.delete(oldest);
    const path = this.#fetch(weights);
    this.#files.set(key, path);
    path.catch(() => this.#files.delete(key));
    return path;
  }

  async #fetch(weights: WeightsSpec): Promise<string> {
    const path = await this.#pull(weights, { signal: this.#signal, onProgress: () => {} });
    const { metadata } = await readGguf(path);
    const text = (name: string) => {
      const entry = metadata.get(name);
      return entry?.type === "string" ? entry.value : undefined;
    };
    if (text("general.type") === "adapter" && text("adapter.type") === "lora") return path;
    const message = `${weights.file} is no LoRA adapter: its metadata does not say general.type "adapter" and adapter.type "lora". Convert the adapter with llama.cpp's convert_lora_to_gguf.py and register that file.`;
    throw new AppError("invalid_value", message, { param: "model" });
  }
}
