/** What the launcher of a task does before it becomes the task's program. */
export interface LaunchOrders {
  readonly command: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly workingDirectory: string;
  /** The cgroup's file that the process enters; empty where there is none. */
  readonly cgroup: string;
  readonly confinement: Confinement;
}

/** How a task is kept from what is not its own. */
export type Confinement = UserConfinement | LandlockConfinement | { readonly kind: "none" };

/** A user of its own. */
export interface UserConfinement {
  readonly kind: "user";
  readonly uid: number;
  readonly gid: number;
  /** Its own view of mounts and processes; absent where the kernel does not permit one. */
  readonly view?: TaskView | undefined;
}

export interface TaskView {
  /** Directories that are replaced by empty ones. */
  readonly covered: readonly string[];
  /** Paths below them that are there nevertheless. */
  readonly shown: readonly { readonly path: string; readonly isReadOnly: boolean }[];
}

/** The worker's user, restricted by Landlock. */
export interface LandlockConfinement {
  readonly kind: "landlock";
  /** Whether the launcher has mounts of its own, on which all but the writable paths is read-only. */
  readonly hasOwnMounts: boolean;
  /** Paths of which nothing can be read. */
  readonly hidden: readonly string[];
  /** Paths that can be read although they lie below hidden ones. */
  readonly readable: readonly string[];
  readonly writable: readonly string[];
}

/** The descriptor on which the launcher gets its orders and answers. */
export const ORDERS_FD = 5;
/** The answer right before the launcher becomes the program. */
export const LAUNCHER_READY = "ready";
