import { readFileSync } from "node:fs";
import { type ClientRequest, type IncomingMessage, request as plainRequest } from "node:http";
import { Agent, request as tlsRequest } from "node:https";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { AppError } from "@heddle/base/errors";
import type { KubernetesAccess } from "../../config/pod-settings.ts";

const REQUEST_TIMEOUT_MS = 30_000;
const MAX_ANSWER_BYTES = 16 * 2 ** 20;
/** The server ends a watch after this time; a watch that says nothing for longer is broken. */
const WATCH_SECONDS = 240;
const WATCH_TIMEOUT_MS = (WATCH_SECONDS + 30) * 1_000;
const ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount";

/** The access that Kubernetes gives a pod. Throws an AppError `invalid_value` outside of one. */
export function podAccess(environment: NodeJS.ProcessEnv = process.env): KubernetesAccess {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = environment;
  if (!host || !port) {
    const message =
      "--executor pod needs a pod of Kubernetes: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set. Leave the flag out on other machines";
    throw new AppError("invalid_value", message);
  }
  const name = host.includes(":") ? `[${host}]` : host;
  return { url: `https://${name}:${port}`, accountFolder: ACCOUNT_FOLDER };
}

/** The API server's refusal. */
export class KubernetesError extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

interface WatchEvent {
  readonly type: string;
  readonly object: unknown;
}

type Query = Readonly<Record<string, string>>;

/** The few calls of the Kubernetes API that a worker needs. */
export class KubernetesApi {
  readonly namespace: string;
  readonly #access: KubernetesAccess;
  readonly #agent: Agent | undefined;

  /** Throws an AppError `invalid_value` where the account's files cannot be read. */
  constructor(access: KubernetesAccess) {
    this.#access = access;
    this.namespace = this.#accountFile("namespace");
    if (!access.url.startsWith("https:")) return;
    const ca = this.#accountFile("ca.crt");
    this.#agent = new Agent({ keepAlive: true, maxSockets: 32, ca });
  }

  /** The path of objects in this namespace. */
  path(plural: string, name = ""): string {
    return `/api/v1/namespaces/${this.namespace}/${plural}${name && `/${name}`}`;
  }

  get<T>(path: string, query: Query = {}): Promise<T> {
    return this.#call("GET", path, query);
  }

  create<T>(path: string, object: object): Promise<T> {
    return this.#call("POST", path, {}, object);
  }

  /** Deletes it with its grace in seconds; true where there was one. */
  async remove(path: string, graceSeconds: number): Promise<boolean> {
    try {
      const body = { gracePeriodSeconds: graceSeconds };
      await this.#call("DELETE", path, {}, body);
      return true;
    } catch (error) {
      if (error instanceof KubernetesError && error.status === 404) return false;
      throw error;
    }
  }

  /** Calls back for each event; resolves when the server has ended the watch. */
  async watch(path: string, query: Query, onEvent: (event: WatchEvent) => void): Promise<void> {
    const all = { ...query, watch: "true", timeoutSeconds: String(WATCH_SECONDS) };
    const answer = await this.#answerTo("GET", path, all, undefined, WATCH_TIMEOUT_MS);
    if (answer.statusCode !== 200) throw await refusalOf(answer, `GET ${path}`);
    for await (const line of createInterface({ input: answer, crlfDelay: Infinity })) {
      if (line !== "") onEvent(JSON.parse(line) as WatchEvent);
    }
  }

  async #call<T>(method: string, path: string, query: Query, body?: object): Promise<T> {
    const answer = await this.#answerTo(method, path, query, body, REQUEST_TIMEOUT_MS);
    const { statusCode = 0 } = answer;
    if (statusCode < 200 || statusCode > 299) throw await refusalOf(answer, `${method} ${path}`);
    return JSON.parse(await textOf(answer)) as T;
  }

  #answerTo(
    method: string,
    path: string,
    query: Query,
    body: object | undefined,
    timeoutMs: number,
  ): Promise<IncomingMessage> {
    const url = new URL(path, this.#access.url);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const text = body && JSON.stringify(body);
    const options = {
      method,
      headers: {
        // Kubernetes replaces the token within the hour.
        authorization: `Bearer ${this.#accountFile("token")}`,
        accept: "application/json",
        ...(text && {
          "content-type": "application/json",
          "content-length": Buffer.byteLength(text),
        }),
      },
      timeout: timeoutMs,
    };
    return new Promise((resolve, reject) => {
      const call: ClientRequest = this.#agent
        ? tlsRequest(url, { ...options, agent: this.#agent }, resolve)
        : plainRequest(url, options, resolve);
      call.once("timeout", () =>
        call.destroy(new Error(`the API server did not answer within ${timeoutMs / 1_000} s`)),
      );
      call.once("error", reject);
      call.end(text);
    });
  }

  #accountFile(name: string): string {
    const file = join(this.#access.accountFolder, name);
    try {
      return readFileSync(file, "utf8").trim();
    } catch (cause) {
      const message = `--executor pod needs a service account's token: ${(cause as Error).message}. Set automountServiceAccountToken`;
      throw new AppError("invalid_value", message, { cause });
    }
  }
}

async function refusalOf(answer: IncomingMessage, what: string): Promise<KubernetesError> {
  const text = await textOf(answer);
  const { statusCode = 0 } = answer;
  try {
    const { message } = JSON.parse(text) as { readonly message?: string };
    return new KubernetesError(statusCode, message ?? `${what}: status ${statusCode}`);
  } catch {
    return new KubernetesError(statusCode, `${what}: status ${statusCode}: ${text.slice(0, 500)}`);
  }
}

async function textOf(answer: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of answer as AsyncIterable<Buffer>) {
    pieces.push(piece);
    bytes += piece.byteLength;
    if (bytes > MAX_ANSWER_BYTES)
      throw new Error(`an answer has more than ${MAX_ANSWER_BYTES} bytes`);
  }
  return Buffer.concat(pieces).toString("utf8");
}
