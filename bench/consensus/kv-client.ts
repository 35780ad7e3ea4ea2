/** What the load generator needs of a store under test, the same for ours and the peer. */
export interface KvClient {
  put(key: string, value: Uint8Array): Promise<void>;
  /** A linearizable read. */
  read(key: string): Promise<void>;
  close(): void;
}

/** Where a member stands, as it says itself. */
export interface MemberView {
  readonly leads: boolean;
  readonly term: number;
}
