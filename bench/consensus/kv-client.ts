/** The interface of a store under test to the load generator, equal for ours and the peer. */
export interface KvClient {
  put(key: string, value: Uint8Array): Promise<void>;
  /** A linearizable read. */
  read(key: string): Promise<void>;
  close(): void;
}

/** A member's own report of its status. */
export interface MemberView {
  readonly isLeader: boolean;
  readonly term: number;
}
