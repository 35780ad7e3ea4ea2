import type { ControlCommand, ControlReply } from "@heddle/control/command";
import type { NodeRecord } from "@heddle/control/jobs/records/records";
import { LeaseExpiry } from "../../apps/master/dist/nodes/lease-expiry.js";
import { LogStore } from "../../apps/master/dist/task-output/log-store.js";
import { Lease } from "../../apps/worker/dist/tasks/leases/lease.js";
import { SimulatedControlPlane } from "./master.ts";

/** Planted bugs, to test that the checker finds them. */
export const CLUSTER_BUGS = [
  /** A worker takes its lease to be ten times as long, and its guard too. */
  "longLease",
  /** A submission is answered before it is committed. */
  "answersEarly",
  /** Tasks of lost nodes count as ended before their leases have. */
  "fencesEarly",
  /** The leader's wall clock says when they have. */
  "fencesByWallClock",
  /** Masters write zeros to logs, but for their first piece. */
  "damagesLogs",
] as const;
export type ClusterBug = (typeof CLUSTER_BUGS)[number];

/** Plants a bug by replacing methods; the product has no hooks for it. Returns how to restore them. */
export function plantBug(bug: ClusterBug | undefined): () => void {
  switch (bug) {
    case "longLease":
      return replaced(
        Lease.prototype,
        "begin",
        (begin) =>
          function (this: Lease, ms: number) {
            begin.call(this, ms * 10);
          },
      );
    case "answersEarly":
      return proposing((command, propose) => {
        const made = propose(command);
        if (command.type !== "job.submit") return made;
        made.catch(() => undefined);
        return Promise.resolve({ ok: true } as ControlReply);
      });
    case "fencesEarly":
      return fencing(() => true);
    case "fencesByWallClock":
      return fencing(({ fencedAtMs = 0 }) => fencedAtMs <= Date.now());
    case "damagesLogs":
      return replaced(
        LogStore.prototype,
        "append",
        (append) =>
          function (this: LogStore, name, piece) {
            const data = piece.offset > 0 ? Buffer.alloc(piece.data.byteLength) : piece.data;
            return append.call(this, name, { ...piece, data });
          },
      );
    default:
      return () => undefined;
  }
}

/** Fences the lost nodes that the rule names. */
function fencing(isOver: (node: NodeRecord) => boolean) {
  return replaced(LeaseExpiry.prototype, "over", () => (nodes) => {
    return [...nodes].flatMap((node) => {
      const { offer, lostIndex } = node;
      return lostIndex !== undefined && isOver(node) ? [{ nodeId: offer.id, lostIndex }] : [];
    });
  });
}

type Propose = (command: ControlCommand) => Promise<ControlReply>;

/** Changes what the masters' modules propose, or what they get for it. */
function proposing(change: (command: ControlCommand, propose: Propose) => Promise<ControlReply>) {
  return replaced(
    SimulatedControlPlane.prototype,
    "propose",
    (original) =>
      function (this: SimulatedControlPlane, command) {
        return change(command, (each) => original.call(this, each));
      },
  );
}

function replaced<T extends object, K extends keyof T>(
  prototype: T,
  name: K,
  change: (original: T[K]) => T[K],
): () => void {
  const original = prototype[name];
  prototype[name] = change(original);
  return () => {
    prototype[name] = original;
  };
}
