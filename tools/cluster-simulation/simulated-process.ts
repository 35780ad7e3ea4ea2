import { AsyncLocalStorage } from "node:async_hooks";
import { closeSync } from "node:fs";
import type { Dice } from "@heddle/simulation/dice";
import type { EventQueue } from "@heddle/simulation/event-queue";

/** Wall-clock time at the start of every run, so that runs of one seed are equal. */
const EPOCH_MS = Date.UTC(2026, 0, 1);

/** The share of reads that take no time, and so no event. */
const CACHED_SHARE = 0.8;

const current = new AsyncLocalStorage<SimulatedProcess>();
const real = { setTimeout, clearTimeout };

/** The simulated process whose code runs now; undefined in the simulation's own code. */
export function here(): SimulatedProcess | undefined {
  return current.getStore();
}

/** A machine's monotonic clock, and its wall clock, which drifts and may be set. */
export interface MachineClock {
  readonly rate: number;
  /** The rate of the wall clock relative to the monotonic one; no code may measure time with it. */
  readonly drift: number;
  offsetMs: number;
  /** When the machine started, in microseconds of true time. */
  bootedUs: number;
}

/** A machine's disk, but for what is on it. */
export interface MachineDisk {
  /** The longest operation; most are much shorter. */
  maxUs: number;
  isFull: boolean;
}

/**
 * A process of a simulated machine, whose code has its clock, its timers and its connections.
 * Nothing of it runs after its end.
 */
export class SimulatedProcess {
  readonly name: string;
  /** Its machine, which is also the host of its addresses. */
  readonly machine: string;
  readonly queue: EventQueue;
  readonly dice: Dice;
  readonly clock: MachineClock;
  readonly disk: MachineDisk;
  /** Called at its end, however it ends. */
  readonly onEnd = new Set<() => void>();
  /** Open files, which the system closes at its end. */
  readonly files = new Set<number>();
  /** What ends, pauses and continues with it. */
  readonly threads = new Set<SimulatedProcess>();
  isAlive = true;
  #isPaused = false;
  /** What happens to a paused process when it continues. */
  #pending: (() => void)[] = [];

  constructor(
    name: string,
    machine: string,
    parts: {
      readonly queue: EventQueue;
      readonly dice: Dice;
      readonly clock: MachineClock;
      readonly disk: MachineDisk;
    },
  ) {
    this.name = name;
    this.machine = machine;
    this.queue = parts.queue;
    this.dice = parts.dice;
    this.clock = parts.clock;
    this.disk = parts.disk;
  }

  get isPaused(): boolean {
    return this.#isPaused;
  }

  /** A thread of it, which may end alone. */
  thread(name: string): SimulatedProcess {
    const thread = new SimulatedProcess(name, this.machine, this);
    this.threads.add(thread);
    thread.onEnd.add(() => this.threads.delete(thread));
    return thread;
  }

  /** Milliseconds since the machine's start. */
  monotonicMs(): number {
    return monotonicMs(this.queue, this.clock);
  }

  /** Since the machine's start, sleep included. */
  uptimeMs(): number {
    return this.monotonicMs();
  }

  wallMs(): number {
    const { rate, drift, offsetMs } = this.clock;
    return EPOCH_MS + offsetMs + (this.queue.nowUs / 1000) * rate * drift;
  }

  /** Throws where the machine's disk has no room. */
  takeRoom(): void {
    if (!this.disk.isFull) return;
    throw Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
  }

  run<T>(work: () => T): T {
    return current.run(this, work);
  }

  /** Runs it in this process after `delayUs` of true time; never after the process has ended. */
  after(delayUs: number, work: () => void): void {
    this.queue.after(delayUs, () => this.#happen(work));
  }

  /** The same for an operation that only reads: most find the file in the page cache. */
  async readLatency(): Promise<void> {
    if (!this.dice.chance(CACHED_SHARE)) await this.fileLatency();
  }

  /** Resolves after the latency of a file operation. */
  fileLatency(): Promise<void> {
    return new Promise((resolve) => this.after(this.dice.skewed(20, this.disk.maxUs), resolve));
  }

  pause(): void {
    this.#isPaused = true;
    for (const thread of this.threads) thread.pause();
  }

  resume(): void {
    this.#isPaused = false;
    for (const thread of this.threads) thread.resume();
    const pending = this.#pending;
    this.#pending = [];
    for (const work of pending) this.#happen(work);
  }

  /** Has the effect of SIGKILL: nothing of it runs any more, and its files stay as they are. */
  end(): void {
    if (!this.isAlive) return;
    this.isAlive = false;
    this.#pending = [];
    for (const thread of this.threads) thread.end();
    for (const file of this.files) closeSync(file);
    this.files.clear();
    const ended = [...this.onEnd];
    this.onEnd.clear();
    for (const notify of ended) notify();
  }

  #happen(work: () => void): void {
    if (!this.isAlive) return;
    if (this.#isPaused) this.#pending.push(work);
    else this.run(work);
  }
}

/** Milliseconds since the start of a machine with that clock. */
export function monotonicMs({ nowUs }: EventQueue, { rate, bootedUs }: MachineClock): number {
  return ((nowUs - bootedUs) / 1000) * rate;
}

/** A timer of a simulated process; Node's interface of a timer. */
export class VirtualTimer {
  readonly #process: SimulatedProcess;
  readonly #work: () => void;
  readonly #delayMs: number;
  readonly #repeats: boolean;
  #epoch = 0;
  #isRef = true;

  constructor(process: SimulatedProcess, work: () => void, delayMs: number, repeats: boolean) {
    this.#process = process;
    this.#work = work;
    // As Node does.
    this.#delayMs = delayMs >= 1 && delayMs <= 2 ** 31 - 1 ? delayMs : 1;
    this.#repeats = repeats;
    this.#schedule();
  }

  cancel(): void {
    this.#epoch++;
  }

  refresh(): this {
    this.#epoch++;
    this.#schedule();
    return this;
  }

  ref(): this {
    this.#isRef = true;
    return this;
  }

  unref(): this {
    this.#isRef = false;
    return this;
  }

  hasRef(): boolean {
    return this.#isRef;
  }

  close(): this {
    this.cancel();
    return this;
  }

  [Symbol.dispose](): void {
    this.cancel();
  }

  #schedule(): void {
    const epoch = this.#epoch;
    const delayUs = (this.#delayMs * 1000) / this.#process.clock.rate;
    this.#process.after(delayUs, () => {
      if (epoch !== this.#epoch) return;
      if (this.#repeats) this.#schedule();
      this.#work();
    });
  }
}

/** Ends a run that is stuck in real time. */
export function realTimeout(ms: number, work: () => void): () => void {
  const timer = real.setTimeout(work, ms);
  return () => real.clearTimeout(timer);
}
