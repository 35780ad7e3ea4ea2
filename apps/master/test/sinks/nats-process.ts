import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { eventually } from "@heddle/base/testing/eventually";
import { NatsConnection } from "../../src/control-plane/event-log/sinks/nats-connection.ts";

/** Stored events come back in base64. */
const MAX_FRAME_BYTES = 1024 * 1024;

/** A server of NATS with JetStream, or why there is none. */
export class NatsProcess {
  readonly port: number;
  readonly #folder: string;
  readonly #flags: readonly string[];
  #child: ChildProcess | undefined;

  constructor(port: number, folder: string, flags: readonly string[] = []) {
    this.port = port;
    this.#folder = folder;
    this.#flags = flags;
  }

  static readonly program = process.env["HEDDLE_NATS_SERVER"] ?? "nats-server";

  static problem(): string | undefined {
    const { status } = spawnSync(NatsProcess.program, ["--version"]);
    if (status === 0) return undefined;
    return "no nats-server: go install github.com/nats-io/nats-server/v2, or set HEDDLE_NATS_SERVER";
  }

  async start(): Promise<void> {
    const place = ["-a", "127.0.0.1", "-p", String(this.port), "-sd", this.#folder];
    const flags = [...place, "-js", "--user", "u", "--pass", "p", ...this.#flags];
    this.#child = spawn(NatsProcess.program, flags, { stdio: "ignore" });
    await eventually(async () => {
      const opened = await this.connect(() => undefined).catch(() => undefined);
      opened?.close();
      return opened !== undefined;
    });
  }

  connect(onMessage: (to: string, headers: string, payload: string) => void, user = "u") {
    const server = { host: "localhost", port: this.port, tls: false, user, password: "p" };
    return NatsConnection.open(server, "_INBOX.test", onMessage, MAX_FRAME_BYTES);
  }

  /** A call of JetStream's API. */
  async ask(subject: string, body: object): Promise<Record<string, unknown>> {
    const { promise, resolve } = Promise.withResolvers<string>();
    const connection = await this.connect((_to, _headers, payload) => resolve(payload));
    connection.publish(`$JS.API.${subject}`, "_INBOX.test.1", "", JSON.stringify(body));
    try {
      const reply = await Promise.race([promise, connection.ended]);
      return JSON.parse(reply) as Record<string, unknown>;
    } finally {
      connection.close();
    }
  }

  /** The messages of a stream, in its order. */
  async stored(stream: string): Promise<readonly string[]> {
    const { state } = (await this.ask(`STREAM.INFO.${stream}`, {})) as {
      readonly state: { readonly messages: number };
    };
    const texts: string[] = [];
    for (let seq = 1; seq <= state.messages; seq++) {
      const reply = await this.ask(`STREAM.MSG.GET.${stream}`, { seq });
      const { data } = reply["message"] as { readonly data: string };
      texts.push(Buffer.from(data, "base64").toString());
    }
    return texts;
  }

  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    child.once("exit", () => resolve());
    child.kill(signal);
    await promise;
  }
}
