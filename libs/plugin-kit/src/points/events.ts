/** An event of the cluster's log, as CloudEvents 1.0 has it. */
export interface SinkEvent {
  readonly id: string;
  readonly type: string;
  /** Its place in the log, equal on all masters: a receiver drops those that it has. */
  readonly sequence: string;
  readonly subject?: string;
  readonly time: string;
  readonly project?: string;
  readonly data: unknown;
  readonly [attribute: string]: unknown;
}

/** Receives the events of the log in their order, each at least once. */
export interface EventSink {
  readonly name: string;
  /** Only events of these types, as `JOB_STATE`; all by default. */
  readonly types?: readonly string[];
  /** Where the first start begins: with the events from then on, or with all that the log has. */
  readonly from?: "now" | "start";
  /** Resolves once they are kept elsewhere. Rejecting gives the same events again, later. */
  deliver(events: readonly SinkEvent[]): void | Promise<void>;
}
