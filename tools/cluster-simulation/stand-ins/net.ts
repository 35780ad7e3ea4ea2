import { EventEmitter } from "node:events";
import { rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { Duplex } from "node:stream";
import type { Listener, SimulatedConnection } from "../network.ts";
import { here, type SimulatedProcess } from "../simulated-process.ts";
import { worldOf } from "../world.ts";

/** `node:net` on the simulated network; a Unix socket is an address that only its machine reaches. */
export * from "node:net";
export default net;

interface Place {
  readonly path?: string;
  readonly host?: string;
  readonly port?: number;
}
interface Buffers {
  readonly buffer: () => Uint8Array;
  readonly callback: (bytes: number, buffer: Uint8Array) => boolean;
}
type ServerArguments = [options: object, accept: (socket: SimulatedSocket) => void];
type SocketOptions = Place & { readonly onread?: Buffers };

export function createServer(...args: ServerArguments): SimulatedServer | net.Server {
  const process = here();
  if (process) return new SimulatedServer(process, args[1]);
  return net.createServer(...(args as unknown as Parameters<typeof net.createServer>));
}

export function connect(where: SocketOptions | string): SimulatedSocket | net.Socket {
  const process = here();
  if (!process) return net.connect(where as net.NetConnectOpts);
  const { path, host, port, onread } = typeof where === "string" ? { path: where } : where;
  const socket = new SimulatedSocket(process, onread);
  const address = path === undefined ? `${host}:${port}` : `${process.machine}:${path}`;
  worldOf(process)
    .network.connect(process, address)
    .then(
      (connection) => {
        if (socket.destroyed) return connection.break();
        pairOf(connection).client = socket;
        socket.open(connection, "client");
        socket.emit("connect");
      },
      (error: Error) => {
        const [code] = /E[A-Z]{4,}/.exec(error.message) ?? [];
        socket.destroy(Object.assign(error, { code }));
      },
    );
  return socket;
}

/** The two ends of a connection; the server's end exists once the connection was accepted. */
interface Pair {
  client?: SimulatedSocket;
  server?: SimulatedSocket;
}
type Side = keyof Pair;

const pairs = new WeakMap<SimulatedConnection, Pair>();

function pairOf(connection: SimulatedConnection): Pair {
  const pair = pairs.get(connection) ?? {};
  pairs.set(connection, pair);
  return pair;
}

class SimulatedServer extends EventEmitter implements Listener {
  readonly process: SimulatedProcess;
  maxConnections = Number.POSITIVE_INFINITY;
  readonly #accept: (socket: SimulatedSocket) => void;
  #place: Place = {};

  constructor(process: SimulatedProcess, accept: (socket: SimulatedSocket) => void) {
    super();
    this.process = process;
    this.#accept = accept;
  }

  listen({ path, host = this.process.machine, port = 0 }: Place): this {
    const { network } = worldOf(this.process);
    if (path !== undefined) {
      // Its mode is set, and it is removed, by its path.
      writeFileSync(path, "");
      this.#place = { path };
    } else this.#place = { host, port: port || network.freePort() };
    network.listen(this.#address, this);
    queueMicrotask(() => this.emit("listening"));
    return this;
  }

  address() {
    return this.#place;
  }

  close(): void {
    worldOf(this.process).network.unlisten(this.#address, this);
    if (this.#place.path !== undefined) rmSync(this.#place.path, { force: true });
  }

  onConnection(connection: SimulatedConnection): void {
    const socket = new SimulatedSocket(this.process);
    pairOf(connection).server = socket;
    socket.open(connection, "server");
    connection.send("server", () => this.#accept(socket));
  }

  get #address(): string {
    const { path, host, port } = this.#place;
    return path === undefined ? `${host}:${port}` : `${this.process.machine}:${path}`;
  }
}

/** The share of writes that arrive in two pieces. */
const SPLIT_SHARE = 0.05;

class SimulatedSocket extends Duplex {
  bytesRead = 0;
  readonly #process: SimulatedProcess;
  readonly #onread: Buffers | undefined;
  #connection: SimulatedConnection | undefined;
  #peer: Side = "server";
  #idleMs = 0;
  #idle: NodeJS.Timeout | undefined;

  constructor(process: SimulatedProcess, onread?: Buffers) {
    super({ autoDestroy: false });
    this.#process = process;
    this.#onread = onread;
  }

  open(connection: SimulatedConnection, side: Side): void {
    this.#connection = connection;
    this.#peer = side === "client" ? "server" : "client";
    connection[side].onBroken = () => this.destroy();
  }

  setTimeout(ms: number): this {
    this.#idleMs = ms;
    this.#isActive();
    return this;
  }

  receive(bytes: Buffer): void {
    if (this.destroyed) return;
    this.#isActive();
    this.bytesRead += bytes.length;
    if (!this.#onread) return void this.push(bytes);
    for (let at = 0; at < bytes.length && !this.destroyed; ) {
      const space = this.#onread.buffer();
      const count = Math.min(space.length, bytes.length - at);
      space.set(bytes.subarray(at, at + count));
      at += count;
      this.#onread.callback(count, space);
    }
  }

  override _write(chunk: Buffer, _: unknown, done: () => void): void {
    this.#isActive();
    // The memory of what was written may change.
    const bytes = Buffer.from(chunk);
    const cut = this.#process.dice.chance(SPLIT_SHARE)
      ? this.#process.dice.whole(0, bytes.length)
      : bytes.length;
    for (const piece of [bytes.subarray(0, cut), bytes.subarray(cut)]) this.#send(piece);
    done();
  }

  override _read(): void {}

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    clearTimeout(this.#idle);
    this.#connection?.break();
    done(error);
  }

  #send(bytes: Buffer): void {
    const connection = this.#connection;
    if (!connection || bytes.length === 0) return;
    connection.send(this.#peer, () => pairOf(connection)[this.#peer]?.receive(bytes));
  }

  #isActive(): void {
    clearTimeout(this.#idle);
    this.#idle = undefined;
    if (this.#idleMs === 0) return;
    this.#idle = setTimeout(() => this.emit("timeout"), this.#idleMs);
  }
}
