/** What the server of an upstream understands beyond OpenAI's contract. */
export const UPSTREAM_DIALECTS = [
  "openai",
  "vllm",
  "sglang",
  "llama-server",
  "tgi",
  "heddle",
] as const;

export type UpstreamDialect = (typeof UPSTREAM_DIALECTS)[number];

/** What an upstream is probed with. */
export const UPSTREAM_PROBES = ["chat", "completions", "embeddings"] as const;

export type UpstreamProbe = (typeof UPSTREAM_PROBES)[number];

/** An OpenAI-compatible server: at an address, or as a command that the worker starts. */
export interface UpstreamSpec {
  /** For example `https://api.openai.com/v1`; absent with `command`. */
  readonly baseUrl?: string | undefined;
  /** A command's name in the worker's configuration; absent with `baseUrl`. */
  readonly command?: string | undefined;
  /** The server's id of the model. */
  readonly model: string;
  readonly dialect: UpstreamDialect;
  /** A key's name in the worker's configuration. */
  readonly apiKey?: string | undefined;
  readonly probe: UpstreamProbe;
  /** Sequences that it is asked for at once. */
  readonly maxConcurrency: number;
  readonly connectTimeoutMs: number;
  /** From the request to the first event of its answer. */
  readonly firstByteTimeoutMs: number;
  /** Between two pieces of an answer. */
  readonly idleTimeoutMs: number;
  /** Further tries of a request before the first byte of its answer. */
  readonly maxRetries: number;
  /** An upstream that was idle this long is probed. */
  readonly probeIntervalMs: number;
}
