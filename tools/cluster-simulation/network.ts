import type { Dice } from "@heddle/simulation/dice";
import type { EventQueue } from "@heddle/simulation/event-queue";
import type { SimulatedProcess } from "./simulated-process.ts";

/** The shortest delay of a message between machines. */
const MIN_DELAY_US = 150;
/** A connection without an answer to its keepalive breaks after this: 10 s idle and 5 s of waiting. */
const KEEPALIVE_US = 15_000_000;
/** A client gives up an unanswered request for a connection after this, as grpc-js does. */
const CONNECT_TIMEOUT_US = 20_000_000;
/** An unanswered request is first repeated after this, and then after twice the time (RFC 6298). */
const FIRST_REPEAT_US = 1_000_000;

/** What accepts connections at an address. */
export interface Listener {
  readonly process: SimulatedProcess;
  onConnection(connection: SimulatedConnection): void;
}

/** One direction between two machines. */
interface Link {
  readonly from: string;
  readonly to: string;
}

/** One end of a connection. */
interface End {
  readonly process: SimulatedProcess;
  onBroken: () => void;
  /** When the newest message to this end arrives: messages stay in order. */
  newestUs: number;
  /** Messages to this end that a cut link holds back. */
  held: (() => void)[];
}

/** A connection between two processes: ordered, without loss, and broken as a whole. */
export class SimulatedConnection {
  readonly #network: Network;
  readonly client: End;
  readonly server: End;
  isBroken = false;

  constructor(network: Network, client: SimulatedProcess, server: SimulatedProcess) {
    const end = (process: SimulatedProcess): End => ({
      process,
      onBroken: () => undefined,
      newestUs: 0,
      held: [],
    });
    this.#network = network;
    this.client = end(client);
    this.server = end(server);
    for (const { onEnd } of [client, server]) onEnd.add(this.#processEnded);
  }

  /** Delivers to that end after the network's delay, and after all that was sent before. */
  send(to: "client" | "server", deliver: () => void): void {
    const end = this[to];
    const { queue } = this.#network;
    const delayUs = this.#network.delayUs() + this.#network.slownessUs(this.#linkTo(end));
    end.newestUs = Math.max(end.newestUs + 1, queue.nowUs + delayUs);
    end.process.after(end.newestUs - queue.nowUs, () => {
      if (this.isBroken) return;
      // Messages that a cut has held back are delivered first, also after it has ended.
      if (this.#isCutTo(end) || end.held.length > 0) end.held.push(deliver);
      else deliver();
    });
  }

  /** Whether it will break: a keepalive needs both directions. */
  get isCut(): boolean {
    return this.#isCutTo(this.client) || this.#isCutTo(this.server);
  }

  #isCutTo(end: End): boolean {
    const { from, to } = this.#linkTo(end);
    return this.#network.isCut(from, to);
  }

  #linkTo(end: End): Link {
    const other = end === this.client ? this.server : this.client;
    return { from: other.process.machine, to: end.process.machine };
  }

  /** Delivers the messages that a cut has held back, in order. */
  flush(): void {
    for (const end of [this.client, this.server]) {
      if (end.held.length === 0 || this.#isCutTo(end)) continue;
      end.process.after(this.#network.delayUs(), () => {
        if (this.#isCutTo(end)) return;
        const { held } = end;
        end.held = [];
        for (const deliver of held) if (!this.isBroken) deliver();
      });
    }
  }

  /** Ends it on both sides; each side notices it after a delay. */
  break(): void {
    if (this.isBroken) return;
    this.isBroken = true;
    this.#network.forget(this);
    for (const end of [this.client, this.server]) {
      end.process.onEnd.delete(this.#processEnded);
      end.process.after(this.#network.delayUs(), () => end.onBroken());
    }
  }

  /** The system of a process that has ended closes its connections, unless the link is cut. */
  readonly #processEnded = () => {
    if (!this.isCut) this.break();
    else this.#network.queue.after(KEEPALIVE_US, () => this.break());
  };
}

/** The network between the machines: who listens where, delays and cut links. */
export class Network {
  readonly queue: EventQueue;
  readonly #dice: Dice;
  maxDelayUs = 2_000;
  readonly #listeners = new Map<string, Listener>();
  readonly #connections = new Set<SimulatedConnection>();
  readonly #cuts = new Map<string, number>();
  /** The additional delay of each slow link. */
  readonly #slow = new Map<string, number>();
  #nextPort = 20_000;

  constructor(queue: EventQueue, dice: Dice) {
    this.queue = queue;
    this.#dice = dice;
  }

  delayUs(): number {
    return this.#dice.skewed(MIN_DELAY_US, this.maxDelayUs);
  }

  freePort(): number {
    return this.#nextPort++;
  }

  /** Throws if the address is in use. */
  listen(address: string, listener: Listener): void {
    if (this.#listeners.get(address)?.process.isAlive) throw new Error(`${address} is in use`);
    this.#listeners.set(address, listener);
  }

  unlisten(address: string, listener: Listener): void {
    if (this.#listeners.get(address) === listener) this.#listeners.delete(address);
  }

  /** Rejects with the reason where no process answers. */
  async connect(from: SimulatedProcess, address: string): Promise<SimulatedConnection> {
    const machine = address.slice(0, address.lastIndexOf(":"));
    await this.#reached(from, machine);
    await passed(from, 2 * this.delayUs());
    const listener = this.#listeners.get(address);
    if (!listener?.process.isAlive) throw new Error(`connect ECONNREFUSED ${address}`);
    const connection = new SimulatedConnection(this, from, listener.process);
    this.#connections.add(connection);
    this.#breakIfSilent(connection);
    listener.onConnection(connection);
    return connection;
  }

  /** Resolves when a request for a connection reaches the machine; a cut link loses it. */
  async #reached(from: SimulatedProcess, machine: string): Promise<void> {
    let waitUs = FIRST_REPEAT_US;
    let leftUs = CONNECT_TIMEOUT_US;
    while (this.isCut(from.machine, machine) || this.isCut(machine, from.machine)) {
      await passed(from, Math.min(waitUs, leftUs));
      leftUs -= waitUs;
      if (leftUs <= 0) throw new Error("connect ETIMEDOUT");
      waitUs *= 2;
    }
  }

  forget(connection: SimulatedConnection): void {
    this.#connections.delete(connection);
  }

  isCut(from: string, to: string): boolean {
    return from !== to && (this.#cuts.get(linkOf(from, to)) ?? 0) > 0;
  }

  /** Cuts both directions for a time; cuts may overlap. */
  cut(a: string, b: string, forUs: number): void {
    this.cutOneWay(a, b, forUs);
    this.cutOneWay(b, a, forUs);
  }

  /** Sets the additional delay of one direction. */
  slowDown(from: string, to: string, byUs: number): void {
    this.#slow.set(linkOf(from, to), byUs);
  }

  slownessUs({ from, to }: Link): number {
    return this.#slow.get(linkOf(from, to)) ?? 0;
  }

  cutOneWay(from: string, to: string, forUs: number): void {
    const link = linkOf(from, to);
    this.#cuts.set(link, (this.#cuts.get(link) ?? 0) + 1);
    for (const connection of this.#connections) this.#breakIfSilent(connection);
    this.queue.after(forUs, () => this.#mend(link));
  }

  mendAll(): void {
    this.#cuts.clear();
    this.#slow.clear();
    for (const connection of [...this.#connections]) connection.flush();
  }

  /** A paused process answers no keepalive. */
  paused(process: SimulatedProcess): void {
    for (const connection of this.#connections) {
      const { client, server } = connection;
      if (client.process === process || server.process === process) this.#breakIfSilent(connection);
    }
    for (const thread of process.threads) this.paused(thread);
  }

  /** Breaks all connections between two machines, as a firewall that forgets them. */
  reset(a: string, b: string): void {
    for (const connection of [...this.#connections]) {
      const ends = [connection.client.process.machine, connection.server.process.machine];
      if (ends.includes(a) && ends.includes(b) && (a === b || ends[0] !== ends[1])) {
        connection.break();
      }
    }
  }

  #mend(link: string): void {
    this.#cuts.set(link, Math.max(0, (this.#cuts.get(link) ?? 0) - 1));
    for (const connection of [...this.#connections]) connection.flush();
  }

  #breakIfSilent(connection: SimulatedConnection): void {
    const isSilent = () =>
      connection.isCut || connection.client.process.isPaused || connection.server.process.isPaused;
    if (!isSilent()) return;
    // A link that was healed and cut again meanwhile breaks a little early.
    this.queue.after(KEEPALIVE_US, () => isSilent() && connection.break());
  }
}

/** Resolves after that time of the process: never where it ends before. */
function passed(process: SimulatedProcess, us: number): Promise<void> {
  return new Promise((resolve) => process.after(us, resolve));
}

function linkOf(from: string, to: string): string {
  return `${from} ${to}`;
}
