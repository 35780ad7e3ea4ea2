import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "./free-ports.ts";

/** A real redis-server: its path, or that of the Debian package. */
export const REDIS_PROGRAM = process.env["HEDDLE_REDIS_SERVER"] ?? "redis-server";

export function hasRedis(): boolean {
  return spawnSync(REDIS_PROGRAM, ["--version"]).status === 0;
}

/** A Redis on loopback that stores nothing on the disk: killed and started again, it is empty. */
export class RedisServer {
  readonly port: number;
  readonly #directory = mkdtempSync(join(tmpdir(), "heddle-redis-"));
  readonly #password: string | undefined;
  #process: ChildProcess;

  private constructor(port: number, password: string | undefined) {
    this.port = port;
    this.#password = password;
    this.#process = this.#spawn();
  }

  /** Clients that connect early must try again. */
  static async start(password?: string): Promise<RedisServer> {
    return new RedisServer(await freePort(), password);
  }

  async kill(): Promise<void> {
    const exited = once(this.#process, "exit");
    this.signal("SIGKILL");
    await exited;
  }

  /** Starts a killed one on the same port. */
  restart(): void {
    this.#process = this.#spawn();
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  async close(): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true });
  }

  #spawn(): ChildProcess {
    const place = ["--port", String(this.port), "--bind", "127.0.0.1", "--dir", this.#directory];
    const memory = ["--save", "", "--appendonly", "no"];
    const password = this.#password === undefined ? [] : ["--requirepass", this.#password];
    return spawn(REDIS_PROGRAM, [...place, ...memory, ...password], { stdio: "ignore" });
  }
}
