import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { eventually } from "@heddle/base/testing/eventually";
import { startArguments } from "@heddle/base/testing/programs";
import { type MasterGroup, REAL_MASTER } from "./master-group.ts";

/** Real nodes for a group of masters, and masters outside it; `close` ends all. */
export class LiveNodes {
  readonly #group: MasterGroup;
  readonly #masters: readonly string[];
  readonly #children: ChildProcess[] = [];

  /** `masters`: host:port of all masters that the nodes attach to. */
  constructor(group: MasterGroup, masters: readonly string[]) {
    this.#group = group;
    this.#masters = masters;
  }

  async startWorker(name: string, flags: readonly string[] = []): Promise<void> {
    const shared = (part: string) => join(this.#group.folder, part);
    const folders = ["--models-cache", shared("cache"), "--checkpoints", shared("checkpoints")];
    const all = [...this.#flags(name), ...folders, "--threads", "1", ...flags];
    await this.#start(startArguments("worker"), all);
  }

  async startParameterServer(name: string, flags: readonly string[] = []): Promise<void> {
    await this.#start(startArguments("parameter-server"), [...this.#flags(name), ...flags]);
  }

  /** A master on another one's files, at the address; resolves with its HTTP address. */
  async startMaster(directory: string, grpcPort: number): Promise<string> {
    const ports = ["--http-port", "0", "--grpc-port", String(grpcPort)];
    const token = ["--cluster-token-file", this.#group.tokenFile];
    const keys = ["--bootstrap-key-file", join(this.#group.folder, "admin-key")];
    return this.#start(REAL_MASTER, ["--data", directory, ...ports, ...token, ...keys]);
  }

  async close(): Promise<void> {
    for (const child of this.#children.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      await ended;
    }
  }

  #flags(name: string): string[] {
    return [
      "--data",
      join(this.#group.folder, name),
      "--name",
      name,
      "--grpc-host",
      "127.0.0.1",
      "--grpc-port",
      "0",
      "--masters",
      this.#masters.join(","),
      "--cluster-token-file",
      this.#group.tokenFile,
    ];
  }

  /** Resolves when it is ready, with its HTTP address if it is a master. */
  async #start(program: readonly string[], flags: readonly string[]): Promise<string> {
    const child = spawn(process.execPath, [...program, ...flags]);
    this.#children.push(child);
    let printed = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        printed += text;
      });
    }
    const ready = () => printed.split("\n").find((line) => line.includes('"msg":"ready"'));
    await eventually(
      async () => {
        if (child.exitCode !== null) throw new Error(printed);
        return ready() !== undefined;
      },
      () => `it is ready: ${printed}`,
    );
    return (JSON.parse(ready() ?? "{}") as { http?: string }).http ?? "";
  }
}
