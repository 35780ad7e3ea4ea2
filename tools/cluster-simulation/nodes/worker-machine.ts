import { appendFileSync } from "node:fs";
import type { TrainerOrders } from "@heddle/contracts/trainer/orders";
import { Dice } from "@heddle/simulation/dice";
import type { TaskEnd } from "../../../apps/worker/src/tasks/executors/executor.ts";
import type { Checker } from "../checker.ts";
import {
  type MachineClock,
  type MachineDisk,
  monotonicMs,
  type SimulatedProcess,
} from "../simulated-process.ts";
import type { ClusterWorld } from "../world.ts";
import type { NodeMachine } from "./node-in-simulation.ts";
import type { RunningTask, StartedTask, TaskMachine } from "./running-task.ts";
import { startTrainer } from "./trainer.ts";

/** The longest time between two lines of a task; most tasks print few, as each line costs events. */
const MAX_LINE_US = [400_000, 2_000_000, 2_000_000];
const MAX_LINE_BYTES = 10_000;

/** A machine of a worker: its clock, its disk and the programs of tasks. */
export class WorkerMachine implements TaskMachine, NodeMachine {
  readonly name: string;
  readonly directory: string;
  readonly clock: MachineClock;
  readonly disk: MachineDisk;
  readonly tasks = new Map<string, RunningTask>();
  readonly #world: ClusterWorld;
  readonly #dice: Dice;
  readonly #checker: Checker;
  /** When the guard kills all tasks, by the machine's clock; undefined while nothing is guarded. */
  #guardedUntilMs: number | undefined;
  #guards = 0;
  #isEnding = false;
  /** Called at the end of a task, with its key. */
  readonly #waiting = new Map<string, (() => void)[]>();

  constructor(world: ClusterWorld, { name, directory, clock, disk }: NodeMachine) {
    this.#world = world;
    this.name = name;
    this.directory = directory;
    this.clock = clock;
    this.disk = disk;
    this.#checker = world.checker;
    this.#dice = new Dice(world.seed, `programs of ${name}`);
  }

  get nowMs(): number {
    return monotonicMs(this.#world.queue, this.clock);
  }

  /** Makes every program end with its next line: without faults longer runs find nothing. */
  endSoon(): void {
    this.#isEnding = true;
  }

  /** The machine loses power and starts again: all of its programs are gone. */
  reboot(): void {
    this.guard(undefined);
    for (const key of this.tasks.keys()) this.kill(key, "SIGKILL");
    this.tasks.clear();
    this.clock.bootedUs = this.#world.queue.nowUs;
  }

  start(task: StartedTask, stdout: string, runUs: number): void {
    const running = this.#begin(task);
    const endUs = this.#world.queue.nowUs + runUs;
    const maxLineUs = this.#dice.pick(MAX_LINE_US);
    let line = 0;
    const step = () => {
      if (running.end) return;
      const text = `${task.key} line ${line++}${"-".repeat(this.#padding())}\n`;
      this.#print(running, stdout, text);
      const isLast = this.#isEnding || this.#world.queue.nowUs >= endUs;
      if (isLast) return this.#end(running, this.#exit());
      this.#world.queue.after(this.#dice.between(1_000, maxLineUs), step);
    };
    step();
  }

  train(task: StartedTask, stdout: string, orders: TrainerOrders): void {
    const running = this.#begin(task);
    running.program = startTrainer(this.#world, this, orders, {
      name: task.key,
      print: (line) => this.#print(running, stdout, `${line}\n`),
      exited: (exitCode) => this.#end(running, { exitCode }),
    });
  }

  signal(key: string, signal: string): boolean {
    const { program, end } = this.tasks.get(key) ?? {};
    return !end && program !== undefined && program.signal(signal);
  }

  kill(key: string, signal: string): void {
    const task = this.tasks.get(key);
    if (task && !task.end) this.#end(task, { signal });
  }

  onEnd(key: string, process: SimulatedProcess, work: (end: TaskEnd) => void): void {
    const notify = () =>
      process.after(this.#dice.between(100, 3_000), () => work(this.tasks.get(key)?.end ?? {}));
    if (this.tasks.get(key)?.end) notify();
    else this.#waiting.set(key, [...(this.#waiting.get(key) ?? []), notify]);
  }

  guard(untilMs: number | undefined): void {
    this.#guardedUntilMs = untilMs;
    const guard = ++this.#guards;
    if (untilMs === undefined) return;
    const leftUs = ((untilMs - this.nowMs) * 1000) / this.clock.rate;
    this.#world.queue.after(leftUs, () => {
      if (guard !== this.#guards || this.#guardedUntilMs === undefined) return;
      for (const key of this.tasks.keys()) this.kill(key, "SIGKILL");
    });
  }

  #begin(task: StartedTask): RunningTask {
    const running: RunningTask = { ...task, machine: this.name, output: [], end: undefined };
    this.tasks.set(task.key, running);
    this.#world.trace(() => `${this.name}: ${task.key} runs`);
    this.#checker.taskStarts(running);
    this.#world.leases.started(this.name, task.key);
    return running;
  }

  #print(task: RunningTask, stdout: string, text: string): void {
    if (this.disk.isFull) return;
    task.output.push(text);
    appendFileSync(stdout, text);
  }

  /** Most lines are short; some fill a message. */
  #padding(): number {
    return this.#dice.chance(0.03) ? this.#dice.whole(0, MAX_LINE_BYTES) : 0;
  }

  /** Some programs fail. */
  #exit(): TaskEnd {
    return { exitCode: this.#dice.chance(0.1) ? 1 : 0 };
  }

  #end(task: RunningTask, end: TaskEnd): void {
    task.end = end;
    task.program?.end();
    this.#world.trace(() => `${this.name}: ${task.key} ends: ${JSON.stringify(end)}`);
    this.#checker.taskEnds(task);
    const waiting = this.#waiting.get(task.key) ?? [];
    this.#waiting.delete(task.key);
    for (const notify of waiting) notify();
  }
}
