import { retry } from "@heddle/base/async/retry";
import { AppError, toAppError } from "@heddle/base/errors";
import type {
  Engine,
  EngineEventSink,
  EngineInfo,
  UpstreamDeployment,
} from "@heddle/contracts/engine";
import type { UpstreamSpec } from "@heddle/contracts/models/upstream-spec";
import { UpstreamConnection } from "./upstream-connection.ts";
import { UpstreamEngine } from "./upstream-engine.ts";
import { UpstreamFault } from "./upstream-fault.ts";
import type { UpstreamPolicy } from "./upstream-policy.ts";
import { type UpstreamCommand, UpstreamProcess } from "./upstream-process.ts";

/** What a worker's administrator permits. */
export interface UpstreamAccess {
  readonly policy: UpstreamPolicy;
  /** The text of a key. Throws `invalid_value` where there is none of that name for the origin. */
  readonly keyFor: (name: string, origin: string) => Promise<string>;
  readonly commands: ReadonlyMap<string, UpstreamCommand>;
}

/** See EngineFactory of the workers. */
export interface UpstreamStart {
  readonly spec: UpstreamDeployment;
  readonly modelPath: string | undefined;
  readonly access: UpstreamAccess;
  readonly sink: EngineEventSink;
  readonly onExit: (error: AppError) => void;
  readonly onDown: (error: AppError) => void;
  readonly onRecovered: () => void;
  readonly signal: AbortSignal;
}

const START_POLL_MS = 250;

/** Resolves when the upstream has generated a token; rejects with an AppError. */
export function startUpstream(start: UpstreamStart): Promise<Engine> {
  const { command } = start.spec.upstream;
  return command === undefined ? startRemote(start) : startCommand(start, command);
}

async function startRemote(start: UpstreamStart): Promise<Engine> {
  const { spec, access, signal } = start;
  const { apiKey } = spec.upstream;
  const baseUrl = new URL(spec.upstream.baseUrl ?? "");
  access.policy.check(baseUrl);
  const key = apiKey === undefined ? undefined : await access.keyFor(apiKey, baseUrl.origin);
  const connection = connectionTo(spec.upstream, baseUrl, key, access.policy);
  const engine = new UpstreamEngine({
    ...start,
    spec: spec.upstream,
    info: infoOf(spec, `at ${baseUrl.host}`, "remote"),
    connection,
  });
  try {
    await engine.start(signal);
    return engine;
  } catch (error) {
    await engine.close();
    throw error;
  }
}

function connectionTo(
  spec: UpstreamSpec,
  baseUrl: URL,
  apiKey: string | undefined,
  policy?: UpstreamPolicy,
): UpstreamConnection {
  const { connectTimeoutMs, maxConcurrency, probe } = spec;
  return new UpstreamConnection({
    baseUrl,
    apiKey,
    connectTimeoutMs,
    // One more for the probe.
    maxConnections: maxConcurrency + 1,
    probedPath: `/${probe === "chat" ? "chat/completions" : probe}`,
    lookup: policy?.lookup,
  });
}

function infoOf(
  { upstream, options }: UpstreamDeployment,
  where: string,
  device: string,
): EngineInfo {
  return {
    engine: `${upstream.dialect} upstream ${where}`,
    device,
    contextTokens: options.contextTokens ?? 0,
    vocabularySize: 0,
    parameters: 0,
    fileType: "",
  };
}

async function startCommand(start: UpstreamStart, name: string): Promise<Engine> {
  const { spec, access, modelPath = "" } = start;
  const command = access.commands.get(name);
  if (!command) {
    const message = `this worker has no command ${name}: its administrator has to configure it (--upstreams)`;
    throw new AppError("invalid_value", message, { param: "engine.command" });
  }
  const { device = "cpu" } = spec.options;
  const values = { model: spec.upstream.model, modelFile: modelPath, device };
  const child = await UpstreamProcess.start(name, command, values);
  const engine = new UpstreamEngine({
    ...start,
    spec: spec.upstream,
    info: infoOf(spec, `by ${name}`, device),
    connection: connectionTo(spec.upstream, child.baseUrl, child.apiKey),
    residentBytes: () => child.residentBytes,
    // It hangs: its end is reported as its exit, and it is started again.
    onDown: () => void child.end(),
    onRecovered: () => undefined,
  });
  const owned = new OwnedEngine(engine, child);
  try {
    await firstToken(engine, child, command.startTimeoutMs, start.signal);
  } catch (error) {
    await owned.close();
    throw error;
  }
  void child.exited.then((reason) => owned.onExit(reason, start.onExit));
  return owned;
}

/** Probes until there is a token, the process ends or its time has passed. */
async function firstToken(
  engine: UpstreamEngine,
  child: UpstreamProcess,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<void> {
  const ended = new AbortController();
  void child.exited.then((reason) => ended.abort(reason));
  const late = AbortSignal.timeout(timeoutMs);
  const needless = AbortSignal.any([signal, ended.signal]);
  let last: AppError | undefined;
  const start = async () => {
    try {
      await engine.start(AbortSignal.any([needless, late]));
    } catch (thrown) {
      const error = toAppError(thrown);
      if (!late.aborted) {
        last = error;
        throw error;
      }
      const why = last?.message ?? error.message;
      const text = `the server was not ready within ${timeoutMs} ms: ${why}`;
      throw new AppError("engine_failed", text, { cause: last });
    }
  };
  return retry(start, {
    backoff: { baseMs: START_POLL_MS, maxMs: START_POLL_MS },
    signal: needless,
    isPassing: (error) => !late.aborted && mayRecover(error),
  });
}

/** False where the server has answered, and would answer alike again. */
function mayRecover(error: unknown): boolean {
  const { cause } = toAppError(error);
  return !(cause instanceof UpstreamFault) || cause.isPassing;
}

/** An engine and the process that serves it, which end together. */
class OwnedEngine implements Engine {
  readonly #engine: UpstreamEngine;
  readonly #process: UpstreamProcess;
  #isClosed = false;

  constructor(engine: UpstreamEngine, process: UpstreamProcess) {
    this.#engine = engine;
    this.#process = process;
  }

  get info(): EngineInfo {
    return this.#engine.info;
  }

  submit: Engine["submit"] = (id, request, options) => this.#engine.submit(id, request, options);
  cancel: Engine["cancel"] = (id) => this.#engine.cancel(id);
  load: Engine["load"] = () => this.#engine.load();

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#engine.close();
    await this.#process.end();
  }

  /** The process has ended by itself. */
  onExit(reason: AppError, report: (reason: AppError) => void): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    void this.#engine.close(reason);
    report(reason);
  }
}
