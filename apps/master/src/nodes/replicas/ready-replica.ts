import type { EngineEvent, EngineRequest } from "@heddle/contracts/engine";

/** A call as a worker gets it. */
export interface InferenceCall {
  readonly requestId: string;
  readonly deployment: string;
  readonly request: EngineRequest;
  /** The API key's id: engines share fairly between these. */
  readonly fairKey: string;
  /** Cached prefixes serve only calls of the same salt. */
  readonly cacheSalt: string;
  readonly deadlineMs: number;
  /** The number of `priorityNumber`; larger goes first. */
  readonly priority: number;
  /** Whether text may come late and joined: of an answer that is shown at its end alone. */
  readonly mayHold?: boolean | undefined;
  /** The trace context of the call's span; absent where traces are off. */
  readonly traceparent?: string | undefined;
  /** The part's position in a call that is divided. */
  readonly place?: PartPlace | undefined;
}

/** Where a part of a call is. The parts of one call go to replicas apart. */
export interface PartPlace {
  /** The replica's holder; undefined while it has none. */
  holder: string | undefined;
  readonly sequences: number;
  /** All parts of the call. */
  readonly siblings: readonly PartPlace[];
}

/** A replica that may take a request. */
export interface Candidate {
  /** The node and the start of its engine: the prefix index's key. */
  readonly holder: string;
  /** Sequences that run or wait there. */
  readonly used: number;
  /** Upper bound on the requests of these sequences; each can have a slot of its own. */
  readonly calls: number;
  readonly maxSequences: number;
  readonly maxQueued: number;
  /** Sequences in use by calls of a key. */
  usedBy(fairKey: string): number;
  /** Sequences of calls of lower priorities: its engine preempts them. */
  yielding(priority: number): number;
}

/** A ready replica that accepts requests. */
export interface ReadyReplica extends Candidate {
  readonly node: string;
  readonly nodeName: string;
  /** What its worker says that its engines know. */
  readonly features: readonly string[];
  /** Whether several workers divide it. */
  readonly isDivided: boolean;
  /** Increases with every report of the node, also over its attachments. */
  readonly reports: number;
  /** The events end with exactly one `done` or `failed`; leaving the iteration cancels. */
  start(call: InferenceCall, deadlineMs: number, signal: AbortSignal): AsyncIterable<EngineEvent>;
}

/** What to expect of a deployment without a ready replica. */
export interface Outlook {
  readonly known: boolean;
  readonly loading: boolean;
  /** It fails until an operator acts: clients must not retry. */
  readonly broken?: boolean;
  /** A call starts its replicas, so it waits for them until its deadline. */
  readonly isPatient?: boolean;
  readonly message: string;
  /** The bytes of the weights that the running pull has received. */
  readonly pulledBytes?: number | undefined;
  readonly totalBytes?: number | undefined;
}

/** What dispatch knows of a deployment's replicas. */
export interface ReplicaSource {
  ready(deployment: string): readonly ReadyReplica[];
  /** Whether a replica is loading or none can be expected; `known` says whether the id exists. */
  outlook(deployment: string): Outlook;
  /** Called whenever any of this may have changed. */
  onChange(listener: () => void): () => void;
}
