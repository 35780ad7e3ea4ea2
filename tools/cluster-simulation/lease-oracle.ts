import type { EventQueue } from "@heddle/simulation/event-queue";
import type { Checker } from "./checker.ts";
import type { MachineClock } from "./simulated-process.ts";

interface Timeline {
  readonly queue: EventQueue;
}

/** How much longer a task may run: a worker that is alive checks its lease this often. */
const SLACK_US = 250_000;

/** The messages of a session that are about leases. */
interface SessionMessage {
  readonly hello?: { readonly leaseMs: number } | null;
  readonly renew?: { readonly request: number } | null;
  readonly leaseRequest?: { readonly request: number } | null;
}

/** When each worker's lease ends, as follows from its messages alone: no code of the product decides. */
export class LeaseOracle {
  readonly #endsUs = new Map<string, number>();
  readonly #checker: Checker;
  readonly #world: Timeline;

  constructor(checker: Checker, world: Timeline) {
    this.#checker = checker;
    this.#world = world;
  }

  /** Follows a session of a leader with the worker of that machine. */
  follow(machine: string, clock: MachineClock): LeaseSession {
    return new LeaseSession(this.#world, (askedUs, leaseMs) =>
      this.#renewed(machine, askedUs + (leaseMs * 1_000) / clock.rate),
    );
  }

  /** A task starts there. */
  started(machine: string, task: string): void {
    const lateUs = this.#world.queue.nowUs - (this.#endsUs.get(machine) ?? 0);
    this.#checker.demand(
      lateUs <= SLACK_US,
      "no lease is honoured after its end",
      () => `${task} starts on ${machine} ${Math.round(lateUs / 1_000)} ms after it`,
    );
  }

  #renewed(machine: string, endsUs: number): void {
    const { queue } = this.#world;
    if (endsUs <= (this.#endsUs.get(machine) ?? 0)) return;
    this.#endsUs.set(machine, endsUs);
    queue.after(endsUs - queue.nowUs + SLACK_US, () => {
      if (this.#endsUs.get(machine) !== endsUs) return;
      const running = this.#checker.runningOn(machine);
      this.#checker.demand(
        running.length === 0,
        "no lease is honoured after its end",
        () => `${running.join(", ")} on ${machine}`,
      );
    });
  }
}

/** What passes between a leader and a worker in one session. */
export class LeaseSession {
  readonly #world: Timeline;
  readonly #renewed: (askedUs: number, leaseMs: number) => void;
  readonly #askedUs = new Map<number, number>();
  #leaseMs = 0;

  constructor(world: Timeline, renewed: (askedUs: number, leaseMs: number) => void) {
    this.#world = world;
    this.#renewed = renewed;
  }

  /** By the worker. */
  sent({ leaseRequest }: SessionMessage): void {
    if (leaseRequest) this.#askedUs.set(leaseRequest.request, this.#world.queue.nowUs);
  }

  /** By the worker, from the leader. */
  received({ hello, renew }: SessionMessage): void {
    if (hello) this.#leaseMs = hello.leaseMs;
    const askedUs = renew && this.#askedUs.get(renew.request);
    if (askedUs !== undefined && askedUs !== null) this.#renewed(askedUs, this.#leaseMs);
  }
}
