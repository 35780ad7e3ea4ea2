import { once } from "node:events";
import { readdirSync } from "node:fs";
import { freePort } from "./free-ports.ts";

/** How one process has grown, read through its inspector. */
export class InspectedHeap {
  readonly #port: number;

  private constructor(port: number) {
    this.#port = port;
  }

  static async make(): Promise<InspectedHeap> {
    return new InspectedHeap(await freePort());
  }

  /** The NODE_OPTIONS of the process. */
  get nodeOptions(): string {
    return `--inspect=127.0.0.1:${this.#port}`;
  }

  /** Bytes that its main thread uses after a garbage collection. */
  async bytes(): Promise<number> {
    const listed = await fetch(`http://127.0.0.1:${this.#port}/json/list`);
    const [target] = (await listed.json()) as { webSocketDebuggerUrl: string }[];
    const socket = new WebSocket(target?.webSocketDebuggerUrl ?? "");
    await once(socket, "open");
    try {
      // What one collection frees may keep others alive until the next.
      for (let round = 0; round < 3; round++) await call(socket, "HeapProfiler.collectGarbage");
      const { usedSize } = (await call(socket, "Runtime.getHeapUsage")) as { usedSize: number };
      return usedSize;
    } finally {
      socket.close();
    }
  }
}

/** Open descriptors and threads of a process. */
export function handlesOf(pid: number): { readonly descriptors: number; readonly threads: number } {
  const count = (kind: string) => readdirSync(`/proc/${pid}/${kind}`).length;
  return { descriptors: count("fd"), threads: count("task") };
}

async function call(socket: WebSocket, method: string): Promise<unknown> {
  const replied = once(socket, "message") as Promise<[{ readonly data: string }]>;
  socket.send(JSON.stringify({ id: 1, method }));
  const [{ data }] = await replied;
  return (JSON.parse(data) as { result: unknown }).result;
}
