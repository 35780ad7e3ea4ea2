import { AppError } from "@heddle/base/errors";
import type { RegisterModelRequest } from "@heddle/contracts/api/models";
import type { UpstreamProbe, UpstreamSpec } from "@heddle/contracts/models/upstream-spec";

/** The member `engine` of a registration that names a server. */
export type RequestedUpstream = RegisterModelRequest["engine"] & { readonly kind: "openai" };

/** Throws `invalid_value` for what contradicts itself, or would have no effect. */
export function checkUpstream(request: RegisterModelRequest, engine: RequestedUpstream): void {
  const { base_url: baseUrl, command } = engine;
  if ((baseUrl === undefined) === (command === undefined)) {
    throw invalid("engine", "give either `base_url` or `command`");
  }
  const option = Object.entries(request.options).find(
    ([name, value]) => name !== "context_tokens" && value !== undefined,
  );
  if (option) throw invalid(`options.${option[0]}`, "the engine `openai` does not have it");
  if (baseUrl === undefined) return;
  checkBaseUrl(baseUrl);
  for (const param of ["source", "weights", "resources"] as const) {
    if (request[param] !== undefined) {
      throw invalid(param, "a server at a `base_url` has its own; leave it out");
    }
  }
}

function checkBaseUrl(text: string): void {
  const param = "engine.base_url";
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol !== "https:" && url?.protocol !== "http:") {
    throw invalid(param, "expected an address such as `https://api.openai.com/v1`");
  }
  // It is listed with the model, and the log of the cluster keeps it.
  if (url.username !== "" || url.password !== "") {
    throw invalid(param, "it must not hold a user or password; name a key by `api_key`");
  }
  if (url.search !== "" || url.hash !== "") throw invalid(param, "it ends with its path");
}

export function upstreamSpecOf(
  engine: RequestedUpstream,
  capabilities: RegisterModelRequest["capabilities"],
): UpstreamSpec {
  return {
    baseUrl: engine.base_url?.replace(/\/+$/, ""),
    command: engine.command,
    model: engine.model,
    dialect: engine.dialect,
    apiKey: engine.api_key,
    probe: probeOf(capabilities),
    maxConcurrency: engine.max_concurrency,
    connectTimeoutMs: milliseconds(engine.connect_timeout_s),
    firstByteTimeoutMs: milliseconds(engine.first_byte_timeout_s),
    idleTimeoutMs: milliseconds(engine.idle_timeout_s),
    maxRetries: engine.max_retries,
    probeIntervalMs: milliseconds(engine.probe_interval_s),
  };
}

function probeOf(capabilities: RegisterModelRequest["capabilities"]): UpstreamProbe {
  return (
    (["chat", "completions", "embeddings"] as const).find((each) => capabilities.includes(each)) ??
    "chat"
  );
}

function milliseconds(seconds: number): number {
  return Math.round(seconds * 1000);
}

function invalid(param: string, why: string): AppError {
  return new AppError("invalid_value", `Invalid value for '${param}': ${why}.`, { param });
}
