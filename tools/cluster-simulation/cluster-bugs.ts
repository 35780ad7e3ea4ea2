import type { ControlCommand, ControlReply } from "@heddle/control/command";
import { JobsTransaction } from "@heddle/control/jobs/commands/jobs-transaction";
import { AccountChanges } from "@heddle/control/jobs/records/account-changes";
import type { CommitPlanCommand, PlannedStart } from "@heddle/control/jobs/records/commands";
import type { NodeRecord } from "@heddle/control/jobs/records/records";
import { ReplicatedControl } from "@heddle/control/replicated-control";
import { CapacityBook } from "@heddle/scheduler/cluster/capacity-book";
import { QuotaLedger } from "@heddle/scheduler/cluster/quota-ledger";
import { plant, SEEDED_BUGS, type SeededBug } from "@heddle/simulation/seeded-bug";
import { LeaseExpiry } from "../../apps/master/dist/nodes/lease-expiry.js";
import { JobExplainer } from "../../apps/master/dist/orchestration/scheduling/job-explainer.js";
import { LogStore } from "../../apps/master/dist/task-output/log-store.js";
import { Lease } from "../../apps/worker/dist/tasks/leases/lease.js";
import { SimulatedControlPlane } from "./master.ts";
import { bug, type PlantedBug, replaced, type Uproot } from "./planted-bug.ts";
import { SimulatedProcess } from "./simulated-process.ts";
import { TRAINING_BUGS } from "./training/training-bugs.ts";

/** The bugs of Raft's core that show in a cluster without changes of its members. */
const RAFT_BUGS = ["skipFsync", "ackBeforeFsync", "skipNoOp"] as const satisfies SeededBug[];

const BUGS = {
  /** A worker takes its lease to be ten times as long, and its guard too. */
  longLease: bug(["cutWorker"], () =>
    replaced(
      Lease.prototype,
      "begin",
      (begin) =>
        function (this: Lease, ms) {
          begin.call(this, ms * 10);
        },
    ),
  ),
  /** A lease runs from the answer to its request. */
  leaseFromAnswer: bug(["failingLink", "cutWorker"], () =>
    replaced(
      Lease.prototype,
      "renew",
      (renew) =>
        function (this: Lease, request) {
          renew.call(this, request);
          renew.call(this, this.ask());
        },
    ),
  ),
  /** The worker's wall clock says when its lease ends. */
  leaseByWallClock: bug(["clockJump", "cutWorker"], () =>
    replaced(
      SimulatedProcess.prototype,
      "uptimeMs",
      () =>
        function (this: SimulatedProcess) {
          return this.wallMs();
        },
    ),
  ),
  /** A submission is answered before it is committed. */
  answersEarly: bug(["masterCrash"], () =>
    proposing((command, propose) => {
      const made = propose(command);
      if (command.type !== "job.submit") return made;
      made.catch(() => undefined);
      return Promise.resolve({ ok: true } as ControlReply);
    }),
  ),
  /** Tasks of lost nodes count as ended before their leases have. */
  fencesEarly: bug(["cutWorker"], () => fencing(() => true)),
  /** The leader's wall clock says when they have. */
  fencesByWallClock: bug(["cutWorker", "clockJump"], () =>
    fencing(({ fencedAtMs = 0 }) => fencedAtMs <= Date.now()),
  ),
  /** They never do. */
  neverFences: bug(["workerLoss", "workerCrash"], () => fencing(() => false)),
  /** Masters write zeros to logs, but for their first piece. */
  damagesLogs: bug(["slowNetwork"], () =>
    appendingLogs((piece) => [
      piece.offset > 0 ? { ...piece, data: Buffer.alloc(piece.data.byteLength) } : piece,
    ]),
  ),
  /** Masters write each piece of a log twice. */
  repeatsLogs: bug(["slowNetwork"], () =>
    appendingLogs((piece) => [piece, { ...piece, offset: piece.offset + piece.data.byteLength }]),
  ),
  /** Every task gets the first device of its node, and apply does not check. */
  sharesDevices: bug([], () => {
    const uproot = planning((start) => ({
      ...start,
      placements: start.placements.map(({ nodeId, devices }) => ({
        nodeId,
        devices: devices.slice(0, 1).map(() => 0),
      })),
    }));
    return both(uproot, takingAll());
  }),
  /** Gangs start without their last task, and apply does not check. */
  splitsGangs: bug([], () =>
    both(
      planning((start) => ({ ...start, placements: start.placements.slice(0, -1) })),
      takingAll(),
    ),
  ),
  /** Some jobs are answered and not stored. */
  losesJobs: bug([], () =>
    replaced(
      JobsTransaction.prototype,
      "submit",
      (submit) =>
        function (this: JobsTransaction, job) {
          if (!job.id.endsWith("3")) submit.call(this, job);
        },
    ),
  ),
  /** What ended tasks held stays in the account of their project. */
  leaksUsage: bug([], () =>
    replaced(
      AccountChanges.prototype,
      "hold",
      (hold) =>
        function (this: AccountChanges, project, request, sign) {
          if (sign > 0) hold.call(this, project, request, sign);
        },
    ),
  ),
  /** Neither plans nor apply check quotas. */
  passesQuotas: bug([], () => replaced(QuotaLedger.prototype, "blockers", () => () => [])),
  /** Some attempts have the number of the one before. */
  repeatsAttempts: bug(["cutWorker"], () =>
    replaced(
      JobsTransaction.prototype,
      "putJob",
      (putJob) =>
        function (this: JobsTransaction, job) {
          putJob.call(this, job.attempt === 2 ? { ...job, attempt: 1 } : job);
        },
    ),
  ),
  /** One master's events lack the last of each entry. */
  dropsEvents: bug([], dropEvents),
  /** The end of some tasks is not reported. */
  dropsReports: bug([], () =>
    proposing((command, propose) => {
      const isDropped =
        command.type === "tasks.report" &&
        [command, ...(command.others ?? [])]
          .flatMap(({ reports }) => reports)
          .some(({ phase, jobId }) => phase === "exited" && jobId.endsWith("5"));
      return isDropped ? Promise.resolve({ ok: true } as ControlReply) : propose(command);
    }),
  ),
  /** A waiting job has no reason. */
  waitsInSilence: bug(["workerCrash"], () =>
    replaced(
      JobExplainer.prototype,
      "explain",
      (explain) =>
        async function (this: JobExplainer, job) {
          const made = await explain.call(this, job);
          return made && { ...made, blockers: [] };
        },
    ),
  ),
  ...TRAINING_BUGS,
  ...(Object.fromEntries(
    RAFT_BUGS.map((name) => [name, bug(["masterCrash", "cutMaster"], () => plant(name))]),
  ) as Record<(typeof RAFT_BUGS)[number], PlantedBug>),
} satisfies Readonly<Record<string, PlantedBug>>;

/** Planted bugs, to test that the checkers find them. The product has no hooks for them. */
export type ClusterBug = keyof typeof BUGS;
export const CLUSTER_BUGS = Object.keys(BUGS) as ClusterBug[];

/** The faults and jobs that make a bug visible. */
export function circumstancesOf(name: ClusterBug) {
  const { faults, trains }: PlantedBug = BUGS[name];
  return { faults, trains };
}

/** Plants it by replacing methods. Returns how to restore them. */
export function plantBug(name: ClusterBug | undefined): Uproot {
  return name ? BUGS[name].plant() : () => undefined;
}

/** What members of the Raft group do of it. */
export function raftBug(name: ClusterBug | undefined): SeededBug | undefined {
  return SEEDED_BUGS.find((each) => each === name);
}

function both(first: Uproot, second: Uproot): Uproot {
  return () => {
    second();
    first();
  };
}

/** Fences the lost nodes that the rule names. */
function fencing(isEnded: (node: NodeRecord) => boolean): Uproot {
  return replaced(LeaseExpiry.prototype, "over", () => (nodes) => {
    return [...nodes].flatMap((node) => {
      const { offer, lostIndex } = node;
      return lostIndex !== undefined && isEnded(node) ? [{ nodeId: offer.id, lostIndex }] : [];
    });
  });
}

type LogPiece = Parameters<LogStore["append"]>[1];

function appendingLogs(change: (piece: LogPiece) => readonly LogPiece[]): Uproot {
  return replaced(
    LogStore.prototype,
    "append",
    (append) =>
      async function (this: LogStore, name, piece) {
        for (const each of change(piece)) await append.call(this, name, each);
        return { ...(await this.state(name)), grew: true };
      },
  );
}

/** Apply takes every placement of a plan. */
function takingAll(): Uproot {
  return replaced(
    CapacityBook.prototype,
    "take",
    () =>
      function (this: CapacityBook, request, _tasks, placements) {
        for (const place of placements) this.hold(request, place);
        return undefined;
      },
  );
}

/** Changes the starts of jobs that the leader plans. */
function planning(change: (start: PlannedStart) => PlannedStart): Uproot {
  return proposing((command, propose) => {
    if (command.type !== "plan.commit") return propose(command);
    const starts = (command as CommitPlanCommand).starts.map(change);
    return propose({ ...command, starts });
  });
}

function dropEvents(): Uproot {
  const found = Object.getOwnPropertyDescriptor(ReplicatedControl.prototype, "derived");
  if (!found?.get) throw new Error("a state derives no events");
  const derived = found.get;
  Object.defineProperty(ReplicatedControl.prototype, "derived", {
    ...found,
    get(this: ReplicatedControl) {
      return (derived.call(this) as ReplicatedControl["derived"]).slice(1);
    },
  });
  return () => Object.defineProperty(ReplicatedControl.prototype, "derived", found);
}

type Propose = (command: ControlCommand) => Promise<ControlReply>;

/** Changes what the masters' modules propose, or what they get for it. */
function proposing(
  change: (command: ControlCommand, propose: Propose) => Promise<ControlReply>,
): Uproot {
  return replaced(
    SimulatedControlPlane.prototype,
    "propose",
    (original) =>
      function (this: SimulatedControlPlane, command) {
        return change(command, (each) => original.call(this, each));
      },
  );
}
