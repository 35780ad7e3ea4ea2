import { type ChildProcess, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { eventually } from "@heddle/base/testing/eventually";
import { freePort } from "@heddle/base/testing/free-ports";
import { SCRIPTED_MASTER, startArguments } from "@heddle/base/testing/programs";

/** Node's arguments for masters to which real workers attach. */
export const REAL_MASTER = startArguments("master");

/** The parts of GET /api/v1/cluster/status that tests read. */
export interface GroupView {
  readonly leader: string | null;
  readonly may_be_stale?: boolean;
  readonly term: number;
  readonly applied: number;
  readonly snapshot_index: number;
  readonly commands: number;
  readonly state_hash: string;
  readonly cluster_version: number;
  readonly masters: readonly {
    readonly id: string;
    readonly member: number;
    readonly role: string;
    readonly lag: number | null;
    readonly behind?: boolean;
  }[];
}

/** Far above what any wait needs on a loaded machine. */
const TIMEOUT_MS = 100_000;
/** Far above what a start takes: a minute was seen on a machine with thirty other loads. */
const READY_MS = 240_000;

interface RunningMaster {
  readonly child: ChildProcess;
  readonly url: string;
}

/** A master's exit code or signal, and its output. */
export interface MasterExit {
  readonly code: number | NodeJS.Signals | null;
  readonly output: string;
}

/** Where a master runs, if not on loopback in the group's folder. */
export interface MasterPlacement {
  /** A prefix of its command line, as `ip netns exec NAME`. */
  readonly wrap?: readonly string[];
  readonly host?: string;
  readonly directory?: string;
  readonly env?: NodeJS.ProcessEnv;
}

/** Masters as processes on loopback, each with its own directory and ports; `close` ends all. */
export class MasterGroup {
  readonly folder = mkdtempSync(join(tmpdir(), "heddle-group-"));
  readonly names: string[];
  readonly #ports = new Map<string, number>();
  readonly #running = new Map<string, RunningMaster>();
  readonly #flags: readonly string[];
  readonly #place: (name: string) => MasterPlacement;
  /** Node's arguments. */
  readonly #program: readonly string[];
  readonly #endings = new Map<string, Promise<MasterExit>>();
  /** The output of each master's latest process. */
  readonly #printed = new Map<string, string>();
  readonly #choosing = new SerialQueue();
  readonly #children = new Set<ChildProcess>();
  /** Whether a new master is added to a running group before its start. */
  adds = true;

  constructor(
    count: number,
    flags: readonly string[] = [],
    place: (name: string) => MasterPlacement = () => ({}),
    program: readonly string[] = SCRIPTED_MASTER,
  ) {
    // Tasks of workers below it run as other users.
    chmodSync(this.folder, 0o777);
    this.names = Array.from({ length: count }, (_, at) => `master-${at + 1}`);
    this.#flags = flags;
    this.#place = place;
    this.#program = program;
  }

  /** host:port of the masters' gRPC servers, after their start. */
  get grpcAddresses(): string[] {
    return [...this.#ports].map(
      ([name, port]) => `${this.#place(name).host ?? "127.0.0.1"}:${port}`,
    );
  }

  get adminKey(): string {
    return readFileSync(join(this.folder, "admin-key"), "utf8").trim();
  }

  directory(name: string): string {
    return this.#place(name).directory ?? join(this.folder, name);
  }

  /** host:port of the master's gRPC, which is kept over restarts. */
  async address(name: string): Promise<string> {
    await this.#choosePorts(name);
    return `127.0.0.1:${this.#ports.get(name)}`;
  }

  get tokenFile(): string {
    return join(this.folder, "token");
  }

  /** Restarts those that were killed; resolves when all are ready and have a leader. */
  async startMissing(): Promise<void> {
    const missing = this.names.filter((name) => !this.runningNames.includes(name));
    await Promise.all(missing.map((name) => this.start(name)));
    await this.leader();
  }

  /** Resolves when all are ready. */
  async startAll(): Promise<void> {
    await Promise.all(this.names.map((name) => this.start(name)));
  }

  /** Resolves when the master is ready; rejects with its output if it exits. */
  async start(name: string): Promise<void> {
    const isAdded = this.adds && this.#isNew(name) && this.runningNames.length > 0;
    if (isAdded) await this.add(name);
    const { wrap = [], env = {} } = this.#place(name);
    const line = [...wrap, process.execPath, ...this.#program, ...(await this.#args(name))];
    const child = spawn(line[0] as string, line.slice(1), { env: { ...process.env, ...env } });
    this.#children.add(child);
    const ready = Promise.withResolvers<string>();
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (text) => {
        output += `${text}\n`;
        this.#printed.set(name, output);
        if (text.includes('"msg":"ready"')) ready.resolve(text);
      });
    }
    const ended = new Promise<MasterExit>((resolve) => {
      child.once("close", (code, signal) => {
        if (this.#running.get(name)?.child === child) this.#running.delete(name);
        resolve({ code: code ?? signal, output });
        ready.reject(new Error(`${name} did not start:\n${output}`));
      });
    });
    this.#endings.set(name, ended);
    const late = setTimeout(() => {
      ready.reject(new Error(`${name} is not ready after four minutes:\n${output}`));
    }, READY_MS);
    const { http } = JSON.parse(await ready.promise.finally(() => clearTimeout(late))) as {
      http: string;
    };
    this.#running.set(name, { child, url: http });
  }

  #joinTokenFile(name: string): string {
    return join(this.folder, `${name}.join-token`);
  }

  /** Gives the master its join token, as an administrator does. */
  async add(name: string): Promise<void> {
    const by = this.runningNames.find((each) => each !== name) ?? "";
    const path = "/api/v1/cluster/join-tokens";
    const reply = await this.change(by, "POST", path, { role: "master", name });
    writeFileSync(this.#joinTokenFile(name), ((await reply.json()) as { token: string }).token);
  }

  #isNew(name: string): boolean {
    return !existsSync(join(this.directory(name), "control", "identity.json"));
  }

  printed(name: string): string {
    return this.#printed.get(name) ?? "";
  }

  /** Resolves when the master's latest process has ended. */
  ending(name: string): Promise<MasterExit> {
    const ending = this.#endings.get(name);
    if (!ending) throw new Error(`${name} was never started`);
    return ending;
  }

  /** Sends its process a signal without waiting for the effect. */
  signal(name: string, signal: NodeJS.Signals): void {
    this.#running.get(name)?.child.kill(signal);
  }

  /** Continues stopped masters. */
  continueAll(): void {
    for (const { child } of this.#running.values()) child.kill("SIGCONT");
  }

  pid(name: string): number | undefined {
    return this.#running.get(name)?.child.pid;
  }

  url(name: string): string | undefined {
    return this.#running.get(name)?.url;
  }

  async #args(name: string): Promise<string[]> {
    await this.#choosePorts(name);
    const hostOf = (each: string) => this.#place(each).host ?? "127.0.0.1";
    const peers = [...this.#ports].map(([each, port]) => `${each}=${hostOf(each)}:${port}`);
    const host = hostOf(name);
    return [
      "--data",
      this.directory(name),
      "--name",
      name,
      "--http-port",
      "0",
      "--grpc-port",
      String(this.#ports.get(name)),
      "--http-host",
      host,
      "--grpc-host",
      host,
      "--insecure-bind",
      "--insecure-nodes",
      ...(this.#ports.size > 1 ? ["--peers", peers.join(",")] : []),
      "--cluster-token-file",
      this.tokenFile,
      "--bootstrap-key-file",
      join(this.folder, "admin-key"),
      "--profile",
      "tiny",
      "--join-token-file",
      this.#joinTokenFile(name),
      "--wal-segment-mib",
      "1",
      "--drain-ms",
      "100",
      ...this.#flags,
    ];
  }

  /** Serialized, so that all masters get the same addresses. */
  async #choosePorts(name: string): Promise<void> {
    await this.#choosing.run(async () => {
      for (const each of new Set([...this.names, name])) {
        if (!this.#ports.has(each)) this.#ports.set(each, await freePort());
      }
    });
  }

  /** Kills or stops a master; resolves when it has exited. */
  async end(name: string, signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const master = this.#running.get(name);
    if (!master) return;
    this.#running.delete(name);
    master.child.kill(signal);
    await this.#endings.get(name);
  }

  /** Blocks a master's main thread for 4 s. */
  block(name: string): void {
    this.#running.get(name)?.child.kill("SIGUSR2");
  }

  wipe(name: string): void {
    rmSync(this.directory(name), { recursive: true });
  }

  get runningNames(): string[] {
    return [...this.#running.keys()];
  }

  request(
    name: string,
    method: string,
    path: string,
    body?: unknown,
    key = this.adminKey,
    headers: Record<string, string> = {},
  ): Promise<Response> {
    const master = this.#running.get(name);
    if (!master) throw new Error(`${name} does not run`);
    return fetch(master.url + path, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json", ...headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }

  /**
   * Makes a change once; retries while the leader changes, which it may at any time on a stalled
   * machine.
   */
  async change(name: string, method: string, path: string, body?: unknown): Promise<Response> {
    const once = { "idempotency-key": randomUUID() };
    const end = performance.now() + TIMEOUT_MS;
    for (;;) {
      const reply = await this.request(name, method, path, body, undefined, once);
      if (reply.status !== 503 || performance.now() > end) return reply;
      const text = await reply.clone().text();
      if (!/"(outcome_unknown|unavailable)"/.test(text)) return reply;
      await delay(100);
    }
  }

  /** Creates an API key and returns it. */
  async createKey(name: string, label: string): Promise<{ id: string; key: string }> {
    const reply = await this.change(name, "POST", "/api/v1/keys", { name: label });
    if (reply.status !== 200) throw new Error(`${reply.status}: ${await reply.text()}`);
    return (await reply.json()) as { id: string; key: string };
  }

  async keyNames(name: string): Promise<string[]> {
    const reply = await this.request(name, "GET", "/api/v1/keys?limit=100");
    return ((await reply.json()) as { data: { name: string }[] }).data.map((key) => key.name);
  }

  async status(name: string): Promise<GroupView> {
    const reply = await this.request(name, "GET", "/api/v1/cluster/status");
    return (await reply.json()) as GroupView;
  }

  /** The leader's name on which the given, or all running, masters agree. */
  async leader(of?: readonly string[]): Promise<string> {
    let found = "";
    await eventually(async () => {
      const names = of ?? this.runningNames;
      // A master about to exit may not answer.
      const statuses = names.map((name) => this.status(name).catch(() => undefined));
      const seen = (await Promise.all(statuses)).map((status) => status?.leader);
      found = seen[0] ?? "";
      return names.includes(found) && seen.every((leader) => leader === found);
    }, "a leader that runs is known to all");
    return found;
  }

  async close(): Promise<void> {
    for (const child of this.#children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const exited = once(child, "exit");
      child.kill("SIGKILL");
      await exited;
    }
    rmSync(this.folder, { recursive: true });
  }
}
