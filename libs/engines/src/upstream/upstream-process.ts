import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";
import { extname } from "node:path";
import { fileURLToPath } from "node:url";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { AppError } from "@heddle/base/errors";
import { residentBytesOf } from "@heddle/base/process/resident-bytes";

/** A server that workers may start, as their administrator configures it. */
export interface UpstreamCommand {
  /** An absolute path and arguments, with `{port}`, `{model_file}`, `{model}` and `{api_key}`. */
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The path before `/chat/completions`. */
  readonly path: string;
  readonly startTimeoutMs: number;
}

/** Characters of its error output that are kept for the log. */
const MAX_ERROR_OUTPUT = 2000;
/** From the request to end to the end by force. */
const END_MS = 5_000;

/** A server in a process of its own, which ends with this one. */
export class UpstreamProcess {
  readonly baseUrl: URL;
  readonly apiKey: string;
  readonly #child: ChildProcess;
  readonly #exited = Promise.withResolvers<AppError>();
  #errorOutput = "";

  private constructor(child: ChildProcess, baseUrl: URL, apiKey: string, name: string) {
    this.#child = child;
    this.baseUrl = baseUrl;
    this.apiKey = apiKey;
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#errorOutput = (this.#errorOutput + text).slice(-MAX_ERROR_OUTPUT);
    });
    const end = (how: string) => {
      const cause = new Error(this.#errorOutput.trim());
      this.#exited.resolve(new AppError("engine_failed", `the server ${name} ${how}`, { cause }));
    };
    child.once("error", ({ message }) => end(`was not started: ${message}`));
    child.once("close", (code, signal) => end(`ended with ${signal ?? `code ${code}`}`));
  }

  static async start(
    name: string,
    command: UpstreamCommand,
    values: { readonly model: string; readonly modelFile: string; readonly device: string },
  ): Promise<UpstreamProcess> {
    const port = await freePort();
    const apiKey = randomBytes(24).toString("base64url");
    const filled = (text: string) =>
      text
        .replaceAll("{port}", String(port))
        .replaceAll("{model_file}", values.modelFile)
        .replaceAll("{model}", values.model)
        .replaceAll("{api_key}", apiKey);
    const env = Object.entries(command.env).map(([key, value]) => [key, filled(value)]);
    const devices = /^\d/.test(values.device) ? { CUDA_VISIBLE_DEVICES: values.device } : {};
    const child = spawn(...launched(command.argv.map(filled)), {
      stdio: ["ignore", "ignore", "pipe"],
      detached: true,
      env: { ...foreignEnvironment(), ...devices, ...Object.fromEntries(env) },
    });
    const baseUrl = new URL(command.path, `http://127.0.0.1:${port}`);
    return new UpstreamProcess(child, baseUrl, apiKey, name);
  }

  /** Resolves when it is gone, with how it ended. */
  get exited(): Promise<AppError> {
    return this.#exited.promise;
  }

  get residentBytes(): number {
    return residentBytesOf(this.#child.pid);
  }

  /** Ends it and what it has started. */
  async end(): Promise<void> {
    this.#kill("SIGTERM");
    await resolvesWithin(this.exited, END_MS);
    this.#kill("SIGKILL");
    await this.exited;
  }

  #kill(signal: NodeJS.Signals): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // The group has ended.
    }
  }
}

/** On Linux a launcher becomes the command, so that the kernel ends it with this process. */
function launched(argv: readonly string[]): [string, string[]] {
  const [program = "", ...rest] = argv;
  if (process.platform !== "linux") return [program, rest];
  const url = new URL(`./command-launcher-main${extname(import.meta.url)}`, import.meta.url);
  return [process.execPath, ["--disable-warning=ExperimentalWarning", fileURLToPath(url), ...argv]];
}

/** The worker's own settings, which may name secrets, are none of the command's. */
function foreignEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(([name]) => !name.startsWith("HEDDLE_"));
  return Object.fromEntries(entries);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}
