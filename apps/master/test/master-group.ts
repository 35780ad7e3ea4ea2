import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const program = fileURLToPath(new URL("./scripted-main.ts", import.meta.url));

/** What GET /api/v1/cluster/status tells of the group. */
export interface GroupView {
  readonly leader: string | null;
  readonly term: number;
  readonly applied: number;
  readonly snapshot_index: number;
  readonly commands: number;
  readonly state_hash: string;
  readonly masters: readonly {
    readonly id: string;
    readonly member: number;
    readonly role: string;
    readonly lag: number | null;
  }[];
}

interface RunningMaster {
  readonly child: ChildProcess;
  readonly url: string;
}

/** Masters as processes on loopback, each with a directory and ports of its own; `close` ends all. */
export class MasterGroup {
  readonly folder = mkdtempSync(join(tmpdir(), "heddle-group-"));
  readonly names: string[];
  readonly #ports = new Map<string, number>();
  readonly #running = new Map<string, RunningMaster>();
  readonly #flags: readonly string[];
  #choosing: Promise<void> = Promise.resolve();
  readonly #children = new Set<ChildProcess>();

  constructor(count: number, flags: readonly string[] = []) {
    this.names = Array.from({ length: count }, (_, at) => `master-${at + 1}`);
    this.#flags = flags;
  }

  get adminKey(): string {
    return readFileSync(join(this.folder, "admin-key"), "utf8").trim();
  }

  directory(name: string): string {
    return join(this.folder, name);
  }

  /** Resolves when all are ready. */
  async startAll(): Promise<void> {
    await Promise.all(this.names.map((name) => this.start(name)));
  }

  /** Resolves when the master says that it is ready; rejects with its output where it ends. */
  async start(name: string): Promise<void> {
    const child = spawn(process.execPath, [program, ...(await this.#args(name))]);
    this.#children.add(child);
    let output = "";
    child.stderr.on("data", (chunk) => {
      output += chunk;
    });
    for await (const line of createInterface({ input: child.stdout })) {
      output += `${line}\n`;
      if (!line.includes('"msg":"ready"')) continue;
      this.#running.set(name, { child, url: (JSON.parse(line) as { http: string }).http });
      break;
    }
    child.stdout.resume();
    if (!this.#running.has(name)) throw new Error(`${name} did not start:\n${output}`);
    child.once("exit", () => {
      if (this.#running.get(name)?.child === child) this.#running.delete(name);
    });
  }

  async #args(name: string): Promise<string[]> {
    await this.#choosePorts(name);
    const peers = [...this.#ports].map(([each, port]) => `${each}=127.0.0.1:${port}`).join(",");
    return [
      ...["--data", this.directory(name), "--name", name, "--http-port", "0"],
      ...["--grpc-port", String(this.#ports.get(name))],
      ...(this.#ports.size > 1 ? ["--peers", peers] : []),
      ...["--cluster-token-file", join(this.folder, "token")],
      ...["--bootstrap-key-file", join(this.folder, "admin-key"), "--profile", "tiny"],
      ...["--wal-segment-mib", "1", "--drain-ms", "100", ...this.#flags],
    ];
  }

  /** One caller after the other, so that all masters are told the same. */
  async #choosePorts(name: string): Promise<void> {
    this.#choosing = this.#choosing.then(async () => {
      for (const each of new Set([...this.names, name])) {
        if (!this.#ports.has(each)) this.#ports.set(each, await freePort());
      }
    });
    await this.#choosing;
  }

  /** Kills a master without warning, or ends it in good order; resolves when it is gone. */
  async end(name: string, signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const master = this.#running.get(name);
    if (!master) return;
    this.#running.delete(name);
    const exited = once(master.child, "exit");
    master.child.kill(signal);
    await exited;
  }

  /** Has a master's main thread do nothing else for 4 s. */
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
  ): Promise<Response> {
    const master = this.#running.get(name);
    if (!master) throw new Error(`${name} does not run`);
    return fetch(master.url + path, {
      method,
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }

  /** Creates an API key and returns it. */
  async createKey(name: string, label: string): Promise<{ id: string; key: string }> {
    const reply = await this.request(name, "POST", "/api/v1/keys", { name: label });
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

  /** The name of the leader that a majority of the running masters agrees on. */
  async leader(): Promise<string> {
    let found = "";
    await eventually("a leader that runs is known to all", async () => {
      const names = this.runningNames;
      const seen = await Promise.all(names.map(async (name) => (await this.status(name)).leader));
      found = seen[0] ?? "";
      return names.includes(found) && seen.every((leader) => leader === found);
    });
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

/** Polls until the condition holds; fails after a time that no loaded machine needs. */
export async function eventually(what: string, condition: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + 60_000;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`it never came true that ${what}`);
    await delay(50);
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}
