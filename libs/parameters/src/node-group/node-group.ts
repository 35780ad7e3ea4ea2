/** The tasks of a job on one node, which appear to the servers as one worker. */
export interface NodeGroup {
  /** This task's index among them, from 0; 0 leads. */
  readonly member: number;
  readonly members: number;
  /** The leader's socket file, of at most 100 bytes; the same for all tasks of the node. */
  readonly socketPath: string;
}
