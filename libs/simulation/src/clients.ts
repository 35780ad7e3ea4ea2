import { AppError } from "@heddle/base/errors";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import type { LogCommand, ReplicatedControl } from "@heddle/control/replicated-control";
import { Dice } from "./dice.ts";
import type { Action, Operation } from "./linearizability.ts";
import { encodeCommand } from "./simulated-machine.ts";
import type { SimulatedMember, World } from "./simulated-member.ts";

const LISTS = ["list-a", "list-b"];
const MODELS = ["model-a", "model-b", "model-c"];

/** The result of a call for its client: the reply, a definite failure, or unknown. */
type Outcome<T> =
  | { readonly kind: "reply"; readonly reply: T }
  | { readonly kind: "nothing" }
  | { readonly kind: "lost" };

/**
 * Clients that use the cluster through any member, one call each at a time, and record the
 * outcomes. Lists are the API keys of one name, in the order of creation; registers are models,
 * created and removed. Half of the changes have an idempotency key and are retried until answered.
 */
export class Clients {
  readonly history: Operation[] = [];
  /** Calls with an answer. */
  answered = 0;
  readonly #world: World;
  readonly #clients: readonly Client[];

  constructor(world: World, count: number) {
    this.#world = world;
    this.#clients = Array.from({ length: count }, (_, i) => new Client(world, this, i));
  }

  start(): void {
    for (const client of this.#clients) client.start();
  }

  /** Ends the clients' loops: no client starts another call. */
  stop(): void {
    for (const client of this.#clients) client.stop();
  }

  get isIdle(): boolean {
    return this.#clients.every((client) => client.isIdle);
  }

  /** Reads all keys through every running member; resolves when all reads are done. */
  async readAll(): Promise<void> {
    const up = [...this.#world.members.values()].filter(({ state }) => state === "running");
    const reads = up.flatMap((member) =>
      [...LISTS, ...MODELS].map(async (key) => {
        const calledAt = this.#world.queue.count;
        const action = await read(member, key);
        const returnedAt = this.#world.queue.count;
        this.history.push({ client: `end ${member.id}`, key, calledAt, returnedAt, action });
      }),
    );
    await Promise.all(reads);
  }
}

class Client {
  readonly #world: World;
  readonly #clients: Clients;
  readonly #dice: Dice;
  readonly #name: string;
  readonly #number: number;
  #values = 0;
  /** The client's timeout for an answer. */
  readonly #timeoutUs: number;
  /** The share of reads in its calls; some clients only read. */
  readonly #readShare: number;
  /** The member that it calls while that is up; undefined for any member. */
  readonly #preferred: number | undefined;
  #isStopped = false;
  isIdle = true;

  constructor(world: World, clients: Clients, number: number) {
    this.#world = world;
    this.#clients = clients;
    this.#number = number;
    this.#name = `client-${number}`;
    this.#dice = new Dice(world.seed, this.#name);
    this.#timeoutUs = this.#dice.pick([4, 15, 80]) * world.settings.tickUs;
    this.#readShare = this.#dice.pick([0.1, 0.4, 1]);
    this.#preferred = this.#dice.chance(0.5) ? this.#dice.whole(1, 4) : undefined;
  }

  start(): void {
    this.#world.queue.after(this.#dice.skewed(1000, 200_000), () => {
      if (this.#isStopped) return;
      this.isIdle = false;
      this.#callOne().then(() => {
        this.isIdle = true;
        this.start();
      });
    });
  }

  stop(): void {
    this.#isStopped = true;
  }

  async #callOne(): Promise<void> {
    if (this.#dice.chance(this.#readShare)) {
      await this.#perform(this.#dice.pick([...LISTS, ...MODELS]), read);
    } else if (this.#dice.chance(0.6)) {
      await this.#change(this.#dice.pick(LISTS), "append");
    } else {
      await this.#change(this.#dice.pick(MODELS), this.#dice.chance(0.6) ? "create" : "remove");
    }
  }

  async #change(key: string, type: "append" | "create" | "remove"): Promise<void> {
    const value = `${String.fromCharCode(97 + this.#number)}${String(++this.#values).padStart(7, "0")}`;
    const idempotency = this.#dice.chance(0.5)
      ? { id: `${this.#name}:${value}`, fingerprint: HASH, answer: value }
      : undefined;
    const attempt = async (member: SimulatedMember): Promise<Action> => {
      const command = commandOf(type, key, value, member.wallClockMs);
      const entry = { type: "control", command, idempotency } as const;
      return actionOf(type, value, await propose(member, entry));
    };
    const isRepeatable = idempotency !== undefined;
    await this.#perform(key, attempt, { unknown: actionOf(type, value, undefined), isRepeatable });
  }

  /** Calls, with retries if its key makes them safe, and records the outcome. */
  async #perform(
    key: string,
    attempt: (member: SimulatedMember, key: string) => Promise<Action>,
    change?: { readonly unknown: Action; readonly isRepeatable: boolean },
  ): Promise<void> {
    const { queue, trace } = this.#world;
    const calledAt = queue.count;
    let mayHaveHappened = false;
    for (;;) {
      const member = this.#pickMember();
      const outcome: Outcome<Action> = member
        ? await this.#try(member, () => attempt(member, key))
        : { kind: "nothing" };
      if (outcome.kind === "reply") {
        const call = { client: this.#name, key, calledAt, returnedAt: queue.count };
        this.#clients.history.push({ ...call, action: outcome.reply });
        this.#clients.answered++;
        trace(() => `${this.#name} via ${member?.id}: ${key} ${JSON.stringify(outcome.reply)}`);
        return;
      }
      trace(
        () => `${this.#name} via ${member?.id}: ${key} ${JSON.stringify(change)}: ${outcome.kind}`,
      );
      if (outcome.kind === "lost") mayHaveHappened = true;
      const isTriedAgain = change?.isRepeatable === true && !this.#world.isEnded();
      if (!isTriedAgain) break;
      await this.#wait(this.#dice.between(5000, 60_000));
    }
    if (!change || !mayHaveHappened) return;
    this.#clients.history.push({ client: this.#name, key, calledAt, action: change.unknown });
  }

  #wait(delayUs: number): Promise<void> {
    return new Promise((resolve) => this.#world.queue.after(delayUs, resolve));
  }

  #pickMember(): SimulatedMember | undefined {
    const preferred = this.#world.members.get(this.#preferred ?? -1);
    if (preferred?.isUp && this.#dice.chance(0.9)) return preferred;
    return this.#dice.pickIf([...this.#world.members.values()].filter(({ isUp }) => isUp));
  }

  /**
   * A call ends with an answer, an error, or neither if the member dies or the client times out.
   */
  #try<T>(member: SimulatedMember, call: () => Promise<T>): Promise<Outcome<T>> {
    if (member.state === "paused") return Promise.resolve({ kind: "nothing" });
    const { queue } = this.#world;
    return new Promise((resolve) => {
      const onEnd = () => resolve({ kind: "lost" });
      const settle = (outcome: Outcome<T>) => {
        member.onEnd.delete(onEnd);
        resolve(outcome);
      };
      member.onEnd.add(onEnd);
      queue.after(this.#timeoutUs, () => settle({ kind: "lost" }));
      call().then(
        (reply) => settle({ kind: "reply", reply }),
        (error: unknown) => settle({ kind: isNothing(error) ? "nothing" : "lost" }),
      );
    });
  }
}

/** True for an error which guarantees that nothing was changed. */
function isNothing(error: unknown): boolean {
  if (!(error instanceof AppError)) throw error;
  return error.code === "overloaded" || error.message.endsWith("Nothing was changed.");
}

async function propose(member: SimulatedMember, entry: LogCommand): Promise<ControlReply> {
  const { replica } = member;
  if (!replica) throw new AppError("overloaded", "the member is not up");
  return replica.propose(encodeCommand(entry));
}

async function read(member: SimulatedMember, key: string): Promise<Action> {
  const { replica, machine } = member;
  if (!replica) throw new AppError("overloaded", "the member is not up");
  await replica.readBarrier();
  return { type: "read", values: valuesOf(machine.control, key) };
}

function valuesOf(control: ReplicatedControl, key: string): string[] {
  if (MODELS.includes(key)) {
    const model = control.state.models.get(key);
    return model ? [model.family] : [];
  }
  const values: string[] = [];
  for (const { id, name } of control.state.keys.values()) if (name === key) values.push(id);
  return values;
}

const HASH = "0".repeat(64);

function commandOf(
  type: "append" | "create" | "remove",
  key: string,
  value: string,
  atMs: number,
): ControlCommand {
  if (type === "remove") return { type: "model.remove", atMs, id: key };
  if (type === "append") {
    const record = { id: value, name: key, hash: HASH, scopes: [], models: [], limits: {} };
    return { type: "key.create", atMs, key: { ...record, createdAtMs: atMs } };
  }
  return { type: "model.register", atMs, ...modelOf(key, value) };
}

type Registration = Extract<ControlCommand, { type: "model.register" }>;

function modelOf(id: string, value: string): Pick<Registration, "model" | "deployment"> {
  const model = {
    id,
    family: value,
    contextWindow: 1,
    availability: "",
    intendedUse: "",
    ownedBy: "",
    capabilities: [],
    createdAtMs: 0,
    deployment: value,
    backing: "",
    standIn: false,
  };
  const spec = { key: value, engine: "llama" } as Registration["deployment"]["spec"];
  return { model, deployment: { spec, replicas: 1 } };
}

/** The meaning of a reply; an append can only be refused if it was applied before. */
function actionOf(
  type: "append" | "create" | "remove",
  value: string,
  reply: ControlReply | undefined,
): Action {
  if (type === "create") return { type, value, created: reply?.ok };
  if (type === "remove") return { type, removed: reply?.ok };
  if (reply && !reply.ok)
    return { type: "read", values: [`${value} was refused: ${reply.message}`] };
  return { type, value };
}
