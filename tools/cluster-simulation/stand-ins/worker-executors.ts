import { keyOf } from "../../../apps/worker/dist/records/task-plan.js";
import type {
  Executor,
  TaskEnd,
  TaskHandle,
  TaskLaunch,
} from "../../../apps/worker/dist/tasks/executors/executor.js";
import { trainerOrders } from "../../../apps/worker/dist/tasks/processes/trainer-orders.js";
import { asTrainer } from "../../../apps/worker/dist/tasks/processes/trainer-program.js";
import type { TaskNode } from "../../../apps/worker/dist/tasks/task-node.js";
import type { TaskMachine } from "../nodes/running-task.ts";
import { here, type SimulatedProcess } from "../simulated-process.ts";
import { COUNTING } from "../training/counting-algorithm.ts";
import { worldOf } from "../world.ts";
import { tmpdir } from "./os.ts";

/** Runs of tasks: most are short, and some are longer than the longest lease. */
const SHORT_RUN_US = 3_000_000;
const MAX_RUN_US = 20_000_000;
const LONG_SHARE = 0.25;

/** The executors of a simulated worker: programs are events of its machine. */
export class WorkerExecutors {
  readonly isolation = "user";
  readonly fault = "";
  readonly cgroup = "";
  readonly containerCli = "";
  readonly leaseFolder = "";
  readonly labels = {};
  readonly algorithms = [COUNTING];
  readonly environments: string[] = [];
  readonly schemas = {};
  readonly names: readonly string[];
  readonly all: readonly Executor[];

  private constructor(...executors: Executor[]) {
    this.all = executors;
    this.names = executors.map(({ name }) => name);
  }

  static find(node: TaskNode): WorkerExecutors {
    const process = here();
    const machine = process && worldOf(process).machines.get(process.machine);
    if (!process || !machine) throw new Error("a worker outside of its machine");
    return new WorkerExecutors(
      new SimulatedExecutor(process, machine),
      new SimulatedTraining(process, machine, node),
    );
  }

  /** None opens later. */
  onOpen(): void {}

  get(name: string): Executor | undefined {
    return this.all.find((executor) => executor.name === name);
  }
}

/** What all programs of a machine have in common. */
abstract class MachineExecutor {
  protected readonly process: SimulatedProcess;
  protected readonly machine: TaskMachine;

  constructor(process: SimulatedProcess, machine: TaskMachine) {
    this.process = process;
    this.machine = machine;
  }

  taskAddress() {
    return { host: this.machine.name, port: 30_000 + this.process.dice.whole(0, 10_000) };
  }

  async prepare(): Promise<void> {}

  async adopt({ plan }: TaskLaunch): Promise<TaskHandle | undefined> {
    const key = keyOf(plan.id);
    return this.machine.tasks.has(key)
      ? new SimulatedTask(this.process, this.machine, key)
      : undefined;
  }
}

class SimulatedExecutor extends MachineExecutor implements Executor {
  readonly name = "process";

  async start({ plan, stdout }: TaskLaunch): Promise<TaskHandle> {
    await this.process.fileLatency();
    const key = keyOf(plan.id);
    const { id, devices, gpuMilli } = plan;
    const { dice } = this.process;
    const runUs = dice.chance(LONG_SHARE)
      ? dice.between(SHORT_RUN_US, MAX_RUN_US)
      : dice.between(50_000, SHORT_RUN_US);
    this.machine.start({ key, id, devices, gpuMilli }, stdout, runUs);
    return new SimulatedTask(this.process, this.machine, key);
  }

  /** Ends those of all executors. */
  async sweep(known: ReadonlySet<string>): Promise<number> {
    const unknown = [...this.machine.tasks.values()].filter(
      ({ key, end }) => !end && !known.has(key),
    );
    for (const { key } of unknown) this.machine.kill(key, "SIGKILL");
    return unknown.length;
  }
}

/** Tasks that train: each is the real trainer in a process of the simulation. */
class SimulatedTraining extends MachineExecutor implements Executor {
  readonly name = "training";
  readonly algorithms = [COUNTING];
  readonly #node: TaskNode;

  constructor(process: SimulatedProcess, machine: TaskMachine, node: TaskNode) {
    super(process, machine);
    this.#node = node;
  }

  async start(launch: TaskLaunch): Promise<TaskHandle> {
    await this.process.fileLatency();
    const { plan, stdout } = launch;
    const key = keyOf(plan.id);
    const { id, devices, gpuMilli } = plan;
    const orders = { ...trainerOrders(launch, this.#node, []), socketDirectory: tmpdir() };
    this.machine.train({ key, id, devices, gpuMilli }, stdout, orders);
    return this.#trainer(new SimulatedTask(this.process, this.machine, key), launch);
  }

  override async adopt(launch: TaskLaunch): Promise<TaskHandle | undefined> {
    const task = await super.adopt(launch);
    return task && this.#trainer(task, launch);
  }

  async sweep(): Promise<number> {
    return 0;
  }

  #trainer(task: TaskHandle, { plan }: TaskLaunch): TaskHandle {
    return asTrainer(task, plan.spec.failureTolerance > 0);
  }
}

class SimulatedTask implements TaskHandle {
  readonly record = { simulated: true };
  readonly exited: Promise<TaskEnd>;
  readonly #machine: TaskMachine;
  readonly #key: string;

  constructor(process: SimulatedProcess, machine: TaskMachine, key: string) {
    this.#machine = machine;
    this.#key = key;
    this.exited = new Promise((resolve) => machine.onEnd(key, process, resolve));
  }

  async signal(name: NodeJS.Signals, onlyCaught = false): Promise<number> {
    if (this.#machine.signal(this.#key, name)) return 1;
    if (onlyCaught) return 0;
    if (name === "SIGTERM" || name === "SIGKILL") this.#machine.kill(this.#key, name);
    return 1;
  }

  async hold(): Promise<void> {}

  async kill(): Promise<void> {
    this.#machine.kill(this.#key, "SIGKILL");
    await this.exited;
  }

  killNow(): void {
    this.#machine.kill(this.#key, "SIGKILL");
  }

  async usage() {
    return { memoryBytes: 1_000_000, processes: 1 };
  }
}
